"""`hedgerow init`: four questions, a file, and nothing lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from hedgerow_cli.app import app
from launcher.processes import free_port


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mesh.yaml"


def init(*arguments: str | Path, typed: str = "") -> Result:
    return CliRunner().invoke(app, ["init", *map(str, arguments)], input=typed)


def test_init_asks_for_model_variable_callers_and_stored_answers(file: Path) -> None:
    result = init(file, typed="anthropic:claude\nMY_KEY\nkeys\n\n")
    assert result.exit_code == 0, result.output
    questions = "Which model", "Which variable", "Which callers", "May a stored answer be given"
    assert [result.stderr.count(question) for question in questions] == [1, 1, 1, 1]
    written = yaml.safe_load(file.read_text())
    model = written["models"]["claude"]
    assert (model["engine"], model["model"], model["key_env"]) == ("anthropic", "claude", "MY_KEY")
    assert written["tenants"]["me"] == {"key_env": "HEDGEROW_API_KEY"}
    assert "cache" not in written, "stored answers are off unless an option asks for them"
    assert "export MY_KEY=" in result.stdout
    assert "export HEDGEROW_API_KEY=$(openssl rand -hex 24)" in result.stdout


def test_a_wrong_answer_is_asked_again(file: Path) -> None:
    result = init(file, typed="openai:\n./models/mine\neverybody\nlocal\nall\nno\n")
    assert result.exit_code == 0, result.output
    assert yaml.safe_load(file.read_text())["models"] == {"mine": {"folder": "./models/mine", "tier": "balanced"}}


def test_a_model_without_a_provider_has_no_key_to_ask_for(file: Path) -> None:
    assert "Which variable" not in init(file, typed="Qwen/Qwen3-8B\nlocal\nno\n").stderr


def test_a_name_and_a_url_are_a_model_by_the_form_of_up(file: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    assert init(file, "--yes", "--model", f"small={url}").exit_code == 0
    assert yaml.safe_load(file.read_text())["models"]["small"] == {"url": url, "model": "small", "tier": "balanced"}


def test_with_yes_it_asks_nothing_and_takes_the_providers_usual_variable(file: Path) -> None:
    result = init(file, "--yes", "--model", "openai:gpt", "--json")
    assert json.loads(result.stdout) == {"file": str(file), "needs": ["OPENAI_API_KEY"], "stored_answers": "no"}
    assert result.stderr == ""
    assert not {"tenants", "cache"} & yaml.safe_load(file.read_text()).keys()


@pytest.mark.parametrize(
    ("which", "cache"), [("no", None), ("exact", {"exact": True}), ("semantic", {"semantic": True})]
)
def test_the_mesh_file_has_the_chosen_setting_for_stored_answers(
    file: Path, which: str, cache: dict[str, bool] | None
) -> None:
    assert init(file, typed=f"./mine\nlocal\n{which}\n").exit_code == 0
    assert yaml.safe_load(file.read_text()).get("cache") == cache
    created = init(file, "--force", "--yes", "--model", "./mine", "--stored-answers", which, "--json")
    assert json.loads(created.stdout)["stored_answers"] == which
    assert yaml.safe_load(file.read_text()).get("cache") == cache
    assert init(file, "--force", "--yes", "--model", "./mine", "--stored-answers", "all").exit_code == 2


def test_a_path_with_blanks_is_one_argument_of_what_to_do_next(tmp_path: Path) -> None:
    result = init(tmp_path / "my mesh.yaml", "--yes", "--model", "a/b")
    assert f"hedgerow up '{tmp_path / 'my mesh.yaml'}'\n" in result.stdout


def test_a_file_that_is_there_stays_unless_forced(file: Path) -> None:
    file.write_text("mine")
    assert init(file, "--yes", "--model", "a/b").exit_code == 2
    assert file.read_text() == "mine"
    assert init(file, "--yes", "--model", "a/b", "--force").exit_code == 0
    assert "a/b" in file.read_text()


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    there_is_none = init("--yes", "--model", "./mine", tmp_path / "none" / "mesh.yaml")
    assert there_is_none.exit_code == 2
    assert "cannot be written: No such file or directory" in " ".join(there_is_none.output.split())
    assert init("--yes", "--force", "--model", "./mine", tmp_path).exit_code == 2
