"""`hedgerow config`, with the services' own code behind it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from hedgerow_cli.app import app


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("HEDGEROW_") and name != "HEDGEROW_MODELS_DIR":
            monkeypatch.delenv(name)


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(app, ["config", "explain", *arguments], env=environment)


def settings(result: Result) -> dict[str, Any]:
    return {row["setting"]: row for row in json.loads(result.stdout)["settings"]}


def test_without_settings_explain_shows_the_mesh_of_up() -> None:
    result = run("--json")
    assert result.exit_code == 0
    address = settings(result)["llm_addresses.smollm2-135m"]
    assert (address["source"], address["origin"]) == ("hedgerow up", "HEDGEROW_GATEWAY_LLM_ADDRESSES")
    assert settings(result)["grace_ms"]["source"] == "default"
    assert settings(run("llm", "--json"))["vllm.speculative_config.method"]["value"] == "ngram"


def test_explain_of_the_control_plane_shows_that_of_up_with_a_mesh() -> None:
    result = run("control", "--json")
    assert result.exit_code == 0
    topology = settings(result)["topology"]
    assert (topology["source"], topology["origin"]) == ("hedgerow up --mesh", "HEDGEROW_CONTROL_TOPOLOGY")
    assert topology["value"].endswith("/.hedgerow/topology.yaml")


def test_explain_shows_the_variables_of_the_shell_alone() -> None:
    own = {"HEDGEROW_GATEWAY_LLM_ADDRESSES": '{"mine": "127.0.0.1:1"}', "HEDGEROW_CACHE_GRACE_MS": "7"}
    rows = settings(run("--json", **own))
    assert rows["llm_addresses.mine"]["source"] == "environment"
    assert "llm_addresses.smollm2-135m" not in rows
    assert settings(run("cache", "--json", **own))["grace_ms"]["value"] == 7


def test_people_get_a_line_for_each_setting_and_then_the_plan() -> None:
    result = run("gateway", "--budget-ms", "300")
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["stall_ms", "10000.0", "ms", "default"] in lines
    assert ["A", "budget", "of", "300", "ms,", "its", "first", "text", "within", "300", "ms:"] in lines
    assert ["llm", "60", "240"] in lines


def test_settings_that_would_stop_the_start_exit_with_2_and_the_same_words() -> None:
    wrong = {"HEDGEROW_CACHE_GRACE_MS": "soon"}
    result = run("cache", **wrong)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("python -m services.cache: grace_ms: Input should be a valid integer")
    result = run("cache", "--json", **wrong)
    error = json.loads(result.stdout)["error"]
    assert (result.exit_code, error["reason"], result.stderr) == (2, "BAD_SETTINGS", "")
    assert "grace_ms" in error["message"]


@pytest.mark.parametrize("arguments", [["printer"], ["cache", "--budget-ms", "9"], ["--budget-ms", "0"]])
def test_wrong_use_exits_with_2(arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage:" in result.stderr


def test_a_mesh_file_that_is_here_is_explained_with_what_it_leaves_to_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mesh.yaml").write_text(
        f"models: {{a: {{url: http://127.0.0.1:9/v1}}}}\ntenants: {{t: {{key_sha256: {'a1' * 32}}}}}\n"
        "gateway: {settings: {stall_ms: 900}}\n"
    )
    rows = settings(run("--json", HEDGEROW_GATEWAY_GRACE_MS="7", HEDGEROW_GATEWAY_STALL_MS="800"))
    assert (rows["stall_ms"]["value"], rows["stall_ms"]["source"]) == (900, "mesh.yaml")
    assert (rows["grace_ms"]["value"], rows["grace_ms"]["source"]) == (7, "environment")
    assert rows["tenants_file"]["value"] == str(tmp_path / ".hedgerow/meshes/mesh/tenants.yaml")
    assert settings(run("llm", "--json"))["openai.base_url"]["value"] == "http://127.0.0.1:9/v1"
    missing = run("vision")
    assert (missing.exit_code, missing.stderr) == (1, "hedgerow: mesh.yaml starts no vision\n")
    broken = run("--mesh", "other.yaml")
    assert (broken.exit_code, "other.yaml:1:1: cannot be read" in broken.stderr) == (2, True)


def test_a_setting_that_is_refused_names_the_variable_that_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mesh.yaml").write_text("models: {a: {url: http://127.0.0.1:9/v1}}\n")
    monkeypatch.setenv("HEDGEROW_GATEWAY_BREAKER", '{"open_ms": 5}')
    printed = CliRunner().invoke(app, ["check"]).stderr
    assert "breaker.open_ms of gateway, from the variable HEDGEROW_GATEWAY_BREAKER: no longer a setting" in printed
