"""Settings in force, and the source of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs.settings import settings, settings_classes
from services.runtime import explain
from services.runtime.explain import SettingRow, main

GATEWAY = "HEDGEROW_GATEWAY_"
LLMS = {"small": "127.0.0.1:1", "large": ["127.0.0.1:2", "127.0.0.1:3"]}

MODEL = {
    "name": "m",
    "tier": "fast",
    "context_tokens": 9,
    "prompt_usd_per_mtok": 1,
    "completion_usd_per_mtok": 1,
    "expected_ttft_ms": 1,
    "expected_total_ms": 1,
}


@pytest.fixture(autouse=True)
def environment(environment: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment with only the variables that services need."""
    environment.setenv(f"{GATEWAY}LLM_ADDRESSES", json.dumps(LLMS))
    environment.setenv("HEDGEROW_AUDIO_MODEL", "demo-whisper")
    return environment


def explained(service: str, **options: Any) -> dict[str, SettingRow]:
    return {row["setting"]: SettingRow(**row) for row in explain.explain(service, **options)["settings"]}


def test_a_default_is_shown_with_its_unit() -> None:
    rows = explained("gateway")
    assert rows["grace_ms"] == SettingRow("grace_ms", 5_000, "ms", "default")
    assert rows["hedge.max_share"] == SettingRow("hedge.max_share", 0.05, "of 1", "default")
    assert rows["hedge.across_models"] == SettingRow("hedge.across_models", False, "", "default")
    assert rows["hedge.delay_ms"].unit == "ms"


def test_a_variable_is_named_be_it_the_settings_own_or_the_group_s(environment: pytest.MonkeyPatch) -> None:
    environment.setenv(f"{GATEWAY}HEDGE__DELAY_MS", "90")
    environment.setenv(f"{GATEWAY}LIMIT", '{"initial": 5, "max": 9}')
    environment.setenv(f"{GATEWAY}LIMIT__MAX", "7")
    rows = explained("gateway")
    variables = {
        "hedge.delay_ms": (90, "HEDGE__DELAY_MS"),
        "limit.initial": (5, "LIMIT"),
        "limit.max": (7, "LIMIT__MAX"),
        "llm_addresses.small": (["127.0.0.1:1"], "LLM_ADDRESSES"),
    }
    for setting, (value, variable) in variables.items():
        assert (rows[setting].value, rows[setting].source) == (value, "environment")
        assert rows[setting].origin == GATEWAY + variable
    assert rows["limit.min"].source == rows["hedge.mode"].source == "default"


def test_fixed_settings_are_not_shown() -> None:
    assert not {"hedge.percentile", "shed.load", "stages.cache.share"} & explained("gateway").keys()


def test_the_file_is_named_where_the_environment_says_nothing(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("grace_ms: 1\nlog_level: DEBUG\ntenants: {acme: {weight: 2}}\nllm_addresses: {other: 'a:1'}\n")
    environment.setenv(f"{GATEWAY}CONFIG", str(file))
    environment.setenv(f"{GATEWAY}GRACE_MS", "2")
    rows = explained("gateway")
    assert rows["log_level"] == SettingRow("log_level", "DEBUG", "", "file", str(file))
    assert rows["grace_ms"] == SettingRow("grace_ms", 2, "ms", "environment", f"{GATEWAY}GRACE_MS")
    assert rows["tenants.acme.weight"] == SettingRow("tenants.acme.weight", 2, "", "file", str(file))
    assert rows["tenants.acme.premium"].source == "default"
    assert (rows["llm_addresses.other"].source, rows["llm_addresses.large"].source) == ("file", "environment")


def test_each_group_of_a_list_has_its_own_rows(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("HEDGEROW_ROUTER_MODELS", json.dumps([MODEL, {**MODEL, "name": "n"}]))
    rows = explained("router")
    assert rows["models.1.name"] == SettingRow("models.1.name", "n", "", "environment", "HEDGEROW_ROUTER_MODELS")
    assert rows["models.0.prompt_usd_per_mtok"].unit == "USD a million tokens"


@pytest.mark.parametrize("variable", ["OPENAI__API_KEY", "VLLM__HF_TOKEN"])
def test_no_secret_is_shown(environment: pytest.MonkeyPatch, variable: str) -> None:
    environment.setenv(f"HEDGEROW_LLM_{variable}", "hunter2")
    rows = explained("llm")
    assert rows[variable.lower().replace("__", ".")].value == "**********"
    assert "hunter2" not in str(rows)


@pytest.mark.parametrize("cls", settings_classes(), ids=lambda cls: cls.__name__)
def test_every_setting_of_every_service_is_there(cls: Any, environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    service = cls.__module__.split(".")[1]
    if service == "control":
        (tmp_path / "topology.yaml").write_text('services: {llm: {endpoints: [{address: "127.0.0.1:1"}]}}')
        environment.setenv("HEDGEROW_CONTROL_TOPOLOGY", str(tmp_path / "topology.yaml"))
    if service == "router":
        environment.setenv("HEDGEROW_ROUTER_MODELS", json.dumps([MODEL]))
    paths = {each.path for each in settings(cls) if "[]" not in each.path and "{}" not in each.path}
    missing = paths - explained(service).keys()
    assert missing <= {"llm_addresses", "models"}  # their items are listed instead


def test_the_plan_of_a_gateway_with_audio_and_vision_has_their_stages(environment: pytest.MonkeyPatch) -> None:
    assert "slices_with_senses" not in explain.explain("gateway")["plan"]
    environment.setenv(f"{GATEWAY}VISION_ADDRESS", "127.0.0.1:4")
    environment.setenv(f"{GATEWAY}AUDIO_ADDRESS", "127.0.0.1:5")
    stages = [part["stage"] for part in explain.explain("gateway")["plan"]["slices_with_senses"]]
    assert stages == ["audio", "vision", "cache", "router", "llm"]


def test_the_plan_splits_the_budget_as_the_gateway_would(environment: pytest.MonkeyPatch) -> None:
    plan = explain.explain("gateway", 300)["plan"]
    cache, router, llm = plan["slices"]
    assert plan["budget_ms"] == plan["first_text_ms"] == 300
    assert (cache["stage"], cache["starts_ms"], cache["budget_ms"]) == ("cache", 0, 60)
    assert (llm["starts_ms"], llm["budget_ms"]) == (60, 240)
    assert router["budget_ms"] == 10
    environment.setenv(f"{GATEWAY}STAGE_CAPS_MS", '{"cache": 7}')
    assert explain.explain("gateway", 300)["plan"]["slices"][0]["budget_ms"] == 7
    environment.setenv(f"{GATEWAY}CACHE_ADDRESS", "")
    environment.setenv(f"{GATEWAY}MAX_BUDGET_MS", "200")
    environment.setenv(f"{GATEWAY}FIRST_TOKEN_BUDGET_MS", "50")
    plan = explain.explain("gateway", 300)["plan"]
    assert (plan["budget_ms"], plan["first_text_ms"]) == (200, 50)
    assert [part["stage"] for part in plan["slices"]] == ["router", "llm"]
    assert "plan" not in explain.explain("cache")


def test_explain_reports_invalid_settings_as_the_start_does(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.setenv(f"{GATEWAY}HEDGE__MAX_SHARE", "2")
    with pytest.raises(SystemExit) as caught:
        main(["gateway"])
    assert caught.value.code == 2
    assert capsys.readouterr() == (
        "",
        "python -m services.gateway: hedge.max_share: Input should be less than or equal to 1, got '2'\n",
    )


@pytest.mark.parametrize("arguments", [[], ["printer"], ["gateway", "--budget-ms", "0"]])
def test_wrong_use_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_the_answer_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    main(["gateway", "--budget-ms", "1000"])
    said = json.loads(capsys.readouterr().out)
    assert (said["service"], said["plan"]["budget_ms"]) == ("gateway", 1000)
