"""The demo mesh as data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.mesh import DEMO_MODELS, SERVICES, MeshError, default_models_dir, demo_mesh


def test_services_take_ports_in_a_row_and_know_each_other(models: Path) -> None:
    specs = {spec.name: spec for spec in demo_mesh(6000, Path("state"), models)}
    assert {name: spec.address for name, spec in specs.items()} == {
        name: f"127.0.0.1:{6000 + offset}" for offset, name in enumerate(SERVICES)
    }
    gateway = specs["gateway"].environment
    assert gateway["HEDGEROW_GATEWAY_CACHE_ADDRESS"] == "127.0.0.1:6001"
    assert gateway["HEDGEROW_GATEWAY_ROUTER_ADDRESS"] == "127.0.0.1:6002"
    assert json.loads(gateway["HEDGEROW_GATEWAY_LLM_ADDRESSES"]) == {
        "demo-llm-draft": "127.0.0.1:6003",
        "demo-llm": "127.0.0.1:6004",
    }
    assert json.loads(gateway["HEDGEROW_GATEWAY_TOOLS"])["sources"]["collections"]["address"] == "127.0.0.1:6001"
    assert gateway["HEDGEROW_GATEWAY_VISION_ADDRESS"] == "127.0.0.1:6005"
    assert gateway["HEDGEROW_GATEWAY_AUDIO_ADDRESS"] == "127.0.0.1:6006"


def test_the_gateway_is_the_front(models: Path) -> None:
    assert demo_mesh(6000, Path("state"), models)[-1].name == "gateway"


def test_every_service_hears_where_it_listens_and_where_traces_go(models: Path) -> None:
    for spec in demo_mesh(
        range(7000, 7000 + len(SERVICES)), Path("state"), models, otlp_endpoint="http://127.0.0.1:4317"
    ):
        prefix = f"HEDGEROW_{spec.module.removeprefix('services.').upper()}_"
        assert spec.environment[f"{prefix}ADDRESS"] == spec.address
        assert spec.environment[f"{prefix}OTLP_ENDPOINT"] == "http://127.0.0.1:4317"
        assert {name.startswith(prefix) for name in spec.environment} == {True}


def test_the_larger_model_speculates_with_the_smaller_one(models: Path) -> None:
    specs = {spec.name: spec.environment for spec in demo_mesh(6000, Path("state"), models)}
    speculative = json.loads(specs["llm-quality"]["HEDGEROW_LLM_VLLM__SPECULATIVE_CONFIG"])
    assert speculative["model"] == specs["llm-fast"]["HEDGEROW_LLM_VLLM__MODEL"]
    assert "HEDGEROW_LLM_VLLM__SPECULATIVE_CONFIG" not in specs["llm-fast"]


def test_calls_are_found_in_what_both_models_write(models: Path) -> None:
    specs = {spec.name: spec.environment for spec in demo_mesh(6000, Path("state"), models)}
    assert {specs[name]["HEDGEROW_LLM_VLLM__TOOL_PARSER"] for name in ("llm-fast", "llm-quality")} == {"hermes"}


def test_a_caller_may_overrule_a_service(models: Path) -> None:
    own = {"cache": {"HEDGEROW_CACHE_DATABASE": ""}}
    specs = {spec.name: spec.environment for spec in demo_mesh(6000, Path("state"), models, overrides=own)}
    assert specs["cache"]["HEDGEROW_CACHE_DATABASE"] == ""


def test_a_missing_model_is_named_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(MeshError, match=f"no model {DEMO_MODELS[0]['name']} in {tmp_path}; set HEDGEROW_MODELS_DIR"):
        demo_mesh(6000, tmp_path, tmp_path)


def test_models_are_found_beside_the_package_or_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, models: Path, tmp_path: Path
) -> None:
    monkeypatch.delenv("HEDGEROW_MODELS_DIR", raising=False)
    assert default_models_dir() == models
    monkeypatch.setenv("HEDGEROW_MODELS_DIR", str(tmp_path))
    assert default_models_dir() == tmp_path
