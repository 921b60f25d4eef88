"""The mesh file that `hedgerow init` writes is valid."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import pytest
import yaml

from launcher.meshfile.fields import Surroundings
from launcher.meshfile.reading import parse
from launcher.meshfile.template import PROVIDERS, InitAnswers, place_of, usual_key, write

MODELS = [
    "./model",
    "Qwen/Qwen3-8B",
    "http://127.0.0.1:8000/v1 Qwen/Qwen3-8B",
    *(f"{provider}:some-model" for provider in PROVIDERS),
    "small=http://127.0.0.1:8000/v1",
    "openai:1.5",  # which YAML would take for a number
]


@pytest.mark.parametrize("callers", ["local", "keys"])
@pytest.mark.parametrize("model", MODELS)
def test_every_file_that_is_written_can_be_read(model: str, callers: Literal["local", "keys"], tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    answers = InitAnswers(model, usual_key(model), callers)
    environment = dict.fromkeys(answers.needed, "x")
    file = parse(write(answers), "mesh.yaml", Surroundings(tmp_path, environment)).whole()
    (written,) = file.models.values()
    assert (written.key_env or "") == usual_key(model)
    assert bool(file.tenants) == (callers == "keys")


@pytest.mark.parametrize("model", ["./model", "openai:gpt"])
def test_commented_settings_of_the_template_may_be_uncommented(model: str, tmp_path: Path) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    (tmp_path / "models" / "pictures").mkdir()
    (tmp_path / "model").mkdir()
    opened = re.sub(r"^( *)# ( *[a-z_]+:.*)$", r"\1\2", write(InitAnswers(model)), flags=re.MULTILINE)
    text = opened.replace("cache: false", "cache: true")
    environment = {"HEDGEROW_API_KEY": "x"}
    assert yaml.safe_load(text)["models"].keys() >= {"local"}
    file = parse(text, "mesh.yaml", Surroundings(tmp_path, environment)).whole()
    assert file.vision
    assert file.audio
    assert file.tracing


def test_a_name_before_a_url_is_the_models_name_here() -> None:
    url = "http://127.0.0.1:8000/v1"
    models = yaml.safe_load(write(InitAnswers(f"small={url}#Qwen/Qwen3-8B")))["models"]
    assert models == {"small": {"url": url, "model": "Qwen/Qwen3-8B", "tier": "balanced"}}
    assert place_of(f"small={url}") == {"url": url, "model": "small"}


@pytest.mark.parametrize("model", ["", "a b", "openai:", "http://127.0.0.1:8000/v1", "a=b", "ftp://h/v1", "a=ftp://h"])
def test_a_model_that_cannot_be_meant_is_refused(model: str) -> None:
    with pytest.raises(ValueError, match="needed"):
        place_of(model)
