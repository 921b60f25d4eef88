"""Which services of a mesh file share a process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.meshfile.fields import Surroundings
from launcher.meshfile.processes import Sharing, most_shared, ports_of, processes, specs_of
from launcher.meshfile.reading import parse
from launcher.processes import ServiceSpec

TWO = "models: {a: 'http://127.0.0.1:8000/v1', b: {url: ['http://h:1/v1', 'http://h:2/v1']}}\n"


def shaped(text: str, folder: Path, sharing: Sharing | None = None) -> list[ServiceSpec]:
    """The processes of a mesh file; without `sharing`, those of `hedgerow up`."""
    (folder / "model").mkdir(exist_ok=True)
    file = parse(text, "mesh.yaml", Surroundings(folder, os.environ)).whole()
    made = processes(file, ports_of(file), folder / "state", {})
    return specs_of(made, sharing or most_shared(made))


def members(spec: ServiceSpec) -> list[str]:
    return [each.name for each in spec.members]


def test_with_providers_alone_one_process_serves_everything(tmp_path: Path) -> None:
    (only,) = shaped(TWO, tmp_path)
    assert (only.name, members(only)) == ("hedgerow", ["cache", "router", "llm-a", "llm-b-1", "llm-b-2", "gateway"])
    assert only.address == "127.0.0.1:50050"


def test_a_model_of_this_machine_has_its_own_process_and_so_have_all_but_the_providers_models(tmp_path: Path) -> None:
    specs = shaped("models: {a: 'http://127.0.0.1:8000/v1', v: {folder: ./model}}\n", tmp_path)
    assert [spec.name for spec in specs] == ["cache", "router", "llm-v", "providers", "gateway"]
    assert members(specs[3]) == ["llm-a"]
    assert members(specs[4]) == ["gateway"]


@pytest.mark.parametrize("more", ["audio: openai/whisper-base\n", "gateway: {workers: 2}\n"])
def test_an_audio_service_or_a_second_worker_keeps_the_gateway_apart(more: str, tmp_path: Path) -> None:
    specs = shaped(TWO + more, tmp_path)
    assert specs[-1].name == "gateway"
    assert members(specs[-1]) == ["gateway"]
    assert members(specs[-2]) == ["llm-a", "llm-b-1", "llm-b-2"]


def test_an_engine_that_is_not_ours_has_its_own_process(tmp_path: Path) -> None:
    specs = shaped("models: {a: {url: 'http://h:1/v1', engine: 'mine.engine:start'}}\n", tmp_path)
    assert [spec.name for spec in specs] == ["cache", "router", "llm-a", "gateway"]


def test_a_mesh_that_runs_keeps_its_shape_when_its_file_changes(tmp_path: Path) -> None:
    text = TWO + "audio: openai/whisper-base\n"
    assert [spec.name for spec in shaped(text, tmp_path, Sharing.ALL)] == ["audio", "hedgerow"]
    (only,) = shaped(TWO + "gateway: {workers: 2}\n", tmp_path, Sharing.ALL)
    assert only.name == "hedgerow", "the process keeps its workers running"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_service_that_could_share_a_process_and_is_alone_in_it_is_a_process_of_one_member(
    workers: int, tmp_path: Path
) -> None:
    text = f"{TWO}gateway: {{workers: {workers}}}\naudio: openai/whisper-base\n"
    specs = shaped(text, tmp_path, Sharing.NONE)
    assert [members(spec) for spec in specs if spec.name != "audio"] == [
        ["cache"], ["router"], ["llm-a"], ["llm-b-1"], ["llm-b-2"], ["gateway"]
    ]  # fmt: skip
    assert [members(spec) for spec in specs if spec.name == "audio"] == [[]]


def test_no_embedding_model_is_loaded_where_nothing_is_compared_by_meaning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.meshfile.processes.has_embedder", lambda: True)

    def embedder(cache: str) -> str | None:
        (cache_spec,) = shaped(f"{TWO}cache: {cache}\n", tmp_path, Sharing.NONE)[0].members
        return cache_spec.environment.get("HEDGEROW_CACHE_EMBEDDER")

    assert embedder("{semantic: false}") == embedder("{exact: true, semantic: false}") == "none"
    assert (
        embedder("{semantic: true}")
        is embedder("{semantic: false, collections: ./c.db}")
        is embedder("{exact: true}")
        is None
    )
