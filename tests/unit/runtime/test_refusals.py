"""Refusals of all services, in one process."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from services.runtime import refusals as asked
from services.runtime.explain import settings_class
from services.runtime.process.suggestions import INSTEAD
from services.runtime.refusals import main, refusals

MODEL = "HEDGEROW_AUDIO_MODEL"
BAD = "HEDGEROW_AUDIO_GRACE_MS"
NO_MODEL = "python -m services.audio: model: Field required"
LLMS = {"HEDGEROW_GATEWAY_LLM_ADDRESSES": '{"small": "127.0.0.1:1"}'}
Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.usefixtures("environment")


def test_each_service_reports_its_own_refusals_in_the_words_of_its_start() -> None:
    wrong = {MODEL: "m", BAD: "-1", "HEDGEROW_AUDIO_LOG_LEVEL": "LOUD"}
    assert refusals([("gateway", LLMS), ("audio", wrong), ("cache", {"HEDGEROW_CACHE_COLOUR": "blue"})]) == [
        [],
        [
            "python -m services.audio: log_level: String should match pattern "
            "'^(DEBUG|INFO|WARNING|ERROR)$', got 'LOUD'",
            "python -m services.audio: grace_ms: Input should be greater than or equal to 0, got '-1'",
        ],
        ["python -m services.cache: HEDGEROW_CACHE_COLOUR: no such setting"],
    ]


def test_settings_of_earlier_versions_are_named_with_their_replacements() -> None:
    gateway = {**LLMS, "HEDGEROW_GATEWAY_API_KEYS": "{}", "HEDGEROW_GATEWAY_VISION_MODEL": "m"}
    gateway["HEDGEROW_GATEWAY_HEDGE__PERCENTILE"] = "90"
    llm = {"HEDGEROW_LLM_ENGINE": "openai", "HEDGEROW_LLM_OPENAI__CONTINUES": "true"}
    assert refusals([("gateway", gateway), ("llm", llm)]) == [
        [
            "python -m services.gateway: HEDGEROW_GATEWAY_API_KEYS: no longer a setting, use `keys` of a tenant "
            "(docs/upgrades.md)",
            "python -m services.gateway: HEDGEROW_GATEWAY_VISION_MODEL: no longer a setting, use "
            "HEDGEROW_VISION_DEFAULT_MODEL (docs/upgrades.md)",
            "python -m services.gateway: hedge.percentile: no longer a setting, always 95 (docs/upgrades.md)",
        ],
        [
            "python -m services.llm: openai.continues: no longer a setting, use `prefix` in "
            "HEDGEROW_LLM_OPENAI__FEATURES (docs/upgrades.md)"
        ],
    ]


def test_the_replacement_of_a_setting_is_a_setting() -> None:
    for name, instead in INSTEAD.items():
        for variable in [name, *re.findall(r"HEDGEROW_\w+", instead)]:
            service, _, path = variable.removeprefix("HEDGEROW_").lower().partition("_")
            is_setting = path.split("__")[0] in settings_class(service).model_fields
            assert is_setting is (variable != name or "__" in path), variable


def test_a_setting_of_one_service_reaches_no_other(environment: Patch, tmp_path: Path) -> None:
    file = tmp_path / "audio.yaml"
    file.write_text("model: m\n")
    before = dict(os.environ)
    in_file = {"HEDGEROW_AUDIO_CONFIG": str(file)}
    said = refusals(
        [("audio", each) for each in ({MODEL: "m"}, {}, in_file, {}, {MODEL: "m", BAD: "-1"}, {MODEL: "m"})]
    )
    assert [len(lines) for lines in said] == [0, 1, 0, 1, 1, 0]
    assert said[1] == said[3] == [NO_MODEL]
    assert dict(os.environ) == before
    environment.setenv(MODEL, "everybody's")
    assert refusals([("audio", {}), ("audio", {MODEL: "m"}), ("audio", {})]) == [[], [], []]


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "audio.yaml"
    environments = [("audio", {"HEDGEROW_AUDIO_CONFIG": str(file)})]
    file.write_text("model: m\n")
    assert refusals(environments) == [[]]
    file.write_text("{}\n")
    assert refusals(environments) == [[NO_MODEL]]


def test_a_service_that_is_not_installed_hides_no_other_refusal(environment: Patch) -> None:
    environment.setitem(sys.modules, "services.gateway.config", None)  # importing it raises ImportError
    assert refusals([("audio", {}), ("gateway", {}), ("audio", {})]) == [[NO_MODEL], [], [NO_MODEL]]


def test_a_service_with_unreadable_settings_hides_no_other_refusal(environment: Patch) -> None:
    def fails(service: str) -> Any:
        os.environ[MODEL] = "left behind"
        raise RuntimeError(service)

    whole = settings_class
    environment.setattr(asked, "settings_class", lambda service: (fails if service == "cache" else whole)(service))
    assert refusals([("cache", {}), ("audio", {}), ("audio", {MODEL: "nul\0"})]) == [[], [NO_MODEL], []]


def test_the_answer_is_json_despite_other_output(environment: Patch, capsys: pytest.CaptureFixture[str]) -> None:
    whole = settings_class

    def noisy(service: str) -> Any:
        print("hello from an import")
        print("UserWarning: an old name", file=sys.stderr)
        return whole(service)

    environment.setattr(asked, "settings_class", noisy)
    environment.setattr(sys, "stdin", io.StringIO(json.dumps([["audio", {}], ["gateway", LLMS]])))
    main()
    assert json.loads(capsys.readouterr().out) == [[NO_MODEL], []]
