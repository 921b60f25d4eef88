"""The demo mesh as data."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path

import pytest

from launcher.demo import PULLED, SERVICES, demo_mesh, public_models
from launcher.mesh import Mesh, MeshError
from launcher.processes import free_port
from tests.listings import held
from tests.models import FIXTURES


def test_services_take_ports_in_a_row_and_know_each_other() -> None:
    specs = {spec.name: spec for spec in demo_mesh(6000, Path("state"), FIXTURES)}
    assert {name: spec.address for name, spec in specs.items()} == {
        name: f"127.0.0.1:{6000 + offset}" for offset, name in enumerate(SERVICES)
    }
    assert list(specs)[-1] == "gateway"
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


def test_every_service_is_configured_with_its_address_and_the_trace_endpoint() -> None:
    for spec in demo_mesh(
        range(7000, 7000 + len(SERVICES)), Path("state"), FIXTURES, otlp_endpoint="http://127.0.0.1:4317"
    ):
        prefix = f"HEDGEROW_{spec.module.removeprefix('services.').upper()}_"
        assert spec.environment[f"{prefix}ADDRESS"] == spec.address
        assert spec.environment[f"{prefix}OTLP_ENDPOINT"] == "http://127.0.0.1:4317"
        assert {name.startswith(prefix) for name in spec.environment} == {True}


def test_the_larger_model_speculates_with_the_smaller_one_and_calls_are_found_in_what_both_write() -> None:
    specs = {spec.name: spec.environment for spec in demo_mesh(6000, Path("state"), FIXTURES)}
    speculative = json.loads(specs["llm-quality"]["HEDGEROW_LLM_VLLM__SPECULATIVE_CONFIG"])
    assert speculative["model"] == specs["llm-fast"]["HEDGEROW_LLM_VLLM__MODEL"]
    assert "HEDGEROW_LLM_VLLM__SPECULATIVE_CONFIG" not in specs["llm-fast"]
    assert {specs[name]["HEDGEROW_LLM_VLLM__TOOL_PARSER"] for name in ("llm-fast", "llm-quality")} == {"hermes"}


def test_a_missing_model_is_named_with_the_command_that_pulls_it(tmp_path: Path) -> None:
    gone = replace(FIXTURES, audio=tmp_path / "whisper-base")
    with pytest.raises(MeshError, match=r"no model whisper-base in .*: run `hedgerow models pull whisper-base`"):
        gone.check()
    FIXTURES.check()


def test_the_demo_runs_on_public_models_of_the_catalogue() -> None:
    models = public_models()
    folders = (*(model.folder for model in models.language), models.audio, models.vision)
    assert [folder.name for folder in folders] == list(PULLED)


async def test_a_state_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    mesh = Mesh(demo_mesh(6000, tmp_path, FIXTURES), tmp_path / "file")
    with pytest.raises(MeshError, match="file cannot be the state folder: File exists; --state-dir names another"):
        await mesh.__aenter__()


async def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    def full() -> None:
        raise OSError(ENOSPC, "No space left on device", "tenants.yaml")

    mesh = Mesh(
        [replace(demo_mesh(6000, tmp_path, FIXTURES)[-1], address=f"127.0.0.1:{free_port()}")], tmp_path, prepare=full
    )
    with pytest.raises(MeshError, match=r"^tenants\.yaml cannot be written: No space left on device$"):
        await mesh.__aenter__()


async def test_a_command_that_looks_at_the_state_folder_keeps_no_mesh_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = ExitStack()
    looked.enter_context(held(tmp_path))
    monkeypatch.setattr("launcher.mesh.time.sleep", lambda _: looked.close())
    mesh = Mesh([replace(demo_mesh(6000, tmp_path, FIXTURES)[-1], address=f"127.0.0.1:{free_port()}")], tmp_path)
    async with AsyncExitStack() as stack:
        mesh._claim(stack)
        with pytest.raises(BlockingIOError), held(tmp_path):
            pass
    with held(tmp_path):
        pass
