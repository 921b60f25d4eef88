"""Models come, change and go with their folders."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from services.runtime.deadline import Deadline
from services.vision.errors import BadModel, ModelMissing
from services.vision.manifest import Manifest
from services.vision.pictures import Prepared
from services.vision.repository import Repository
from tests.unit.vision.fake_engine import LABELS, FakeEngine, manifest
from tests.unit.vision.test_model import item, until_busy
from tests.waiting import until


class FakeEngines:
    """Opens a fake engine for each file; a file that holds `broken` cannot be opened."""

    def __init__(self) -> None:
        self.opened: list[FakeEngine] = []

    def __call__(self, described: Manifest, threads: int) -> FakeEngine:
        if "broken" in described.file.read_text():
            raise BadModel("file: a model, got something else")
        self.opened.append(FakeEngine())
        return self.opened[-1]


def put(folder: Path, name: str, content: str = "weights", **changes: object) -> None:
    """Write a model's folder."""
    target = folder / name
    target.mkdir(exist_ok=True)
    described = manifest().model_dump(mode="json", exclude_defaults=True)
    (target / "model.onnx").write_text(content)
    (target / "labels.txt").write_text("\n".join(LABELS))
    (target / "model.yaml").write_text(yaml.safe_dump({**described, **changes}))


@pytest.fixture
def engines() -> FakeEngines:
    return FakeEngines()


@pytest.fixture
async def repository(tmp_path: Path, engines: FakeEngines) -> AsyncIterator[Repository]:
    repository = Repository(tmp_path, "", 0, 64, engines)
    yield repository
    for engine in engines.opened:
        engine.gate.set()
    await repository.close()
    assert all(engine.closed for engine in engines.opened)


def names(repository: Repository) -> list[str]:
    return [model.name for model in repository.models()]


async def test_every_folder_with_a_description_is_a_model(tmp_path: Path, repository: Repository) -> None:
    put(tmp_path, "b")
    put(tmp_path, "a")
    put(tmp_path, ".new")
    (tmp_path / "notes").mkdir()
    await repository.scan()
    assert names(repository) == ["a", "b"]
    assert repository.default == "a"
    assert repository.get("") is repository.get("a")
    with pytest.raises(ModelMissing, match="model: one of a, b, got c"):
        repository.get("c")


async def test_a_broken_model_keeps_no_other_from_serving(
    tmp_path: Path, repository: Repository, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, "good")
    put(tmp_path, "bad", precision="fp9")
    put(tmp_path, "worse", "broken")
    put(tmp_path, "unreadable")
    (tmp_path / "unreadable" / "model.yaml").write_text("made: 2026-02-30\n")
    await repository.scan()
    assert names(repository) == ["good"]
    assert "precision" in caplog.text
    assert "worse/model.yaml: file: a model, got something else" in caplog.text


async def test_unchanged_models_are_not_loaded_again(
    tmp_path: Path, repository: Repository, engines: FakeEngines
) -> None:
    put(tmp_path, "a")
    put(tmp_path, "bad", "broken")
    for _ in range(3):
        await repository.scan()
    assert len(engines.opened) == 1


async def test_a_changed_model_takes_over_and_calls_in_flight_finish_on_the_old_one(
    tmp_path: Path, repository: Repository, engines: FakeEngines
) -> None:
    put(tmp_path, "a")
    await repository.scan()
    old, engine = repository.get("a"), engines.opened[0]
    engine.busy.clear()
    engine.gate.clear()
    future: asyncio.Future[Prepared] = asyncio.get_running_loop().create_future()
    future.set_result(item())
    with old.admit(1):
        running = asyncio.ensure_future(old.compute([future], Deadline.never()))
        await until_busy(engine)
        put(tmp_path, "a", "new weights", batching={"max_size": 2})
        await repository.scan()
        assert repository.get("a") is not old
        assert repository.get("a").manifest.batching.max_size == 2
        assert not engine.closed
        engine.gate.set()
        assert len(await running) == 1
    await repository.close()
    assert engine.closed


async def test_a_broken_change_keeps_the_old_model(
    tmp_path: Path, repository: Repository, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, "a")
    await repository.scan()
    old = repository.get("a")
    put(tmp_path, "a", "broken")
    await repository.scan()
    assert repository.get("a") is old
    assert "the one that serves stays" in caplog.text
    put(tmp_path, "a", "mended")
    await repository.scan()
    assert repository.get("a") is not old


async def test_a_model_without_its_folder_is_unloaded_at_the_second_scan(
    tmp_path: Path, repository: Repository, engines: FakeEngines
) -> None:
    put(tmp_path, "a")
    put(tmp_path, "b")
    await repository.scan()
    old = repository.get("a")
    shutil.rmtree(tmp_path / "a")
    await repository.scan()
    put(tmp_path, "a")
    await repository.scan()
    assert repository.get("a") is not old
    shutil.rmtree(tmp_path / "a")
    for _ in range(2):
        await repository.scan()
    assert names(repository) == ["b"]
    assert repository.default == "b"
    await repository.close()


async def test_a_default_that_is_named_is_not_replaced_by_another(tmp_path: Path, engines: FakeEngines) -> None:
    put(tmp_path, "a")
    repository = Repository(tmp_path, "b", 0, 64, engines)
    await repository.scan()
    with pytest.raises(ModelMissing, match="one of a, got b"):
        repository.get("")
    await repository.close()


async def test_a_folder_that_cannot_be_watched_is_looked_at_every_now_and_then(
    tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def watched(*_: object, **__: object) -> None:
        raise OSError(28, "inotify watch limit reached")

    monkeypatch.setattr("services.vision.repository.awatch", watched)
    watching = asyncio.create_task(repository.watch(rescan_ms=1))
    put(tmp_path, "a")
    await until(lambda: names(repository) == ["a"])
    watching.cancel()
    await asyncio.wait([watching])


@pytest.mark.parametrize("by_notice", [True, False])
async def test_changes_are_seen_with_and_without_notifications_of_the_file_system(
    tmp_path: Path, repository: Repository, by_notice: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a")
    await repository.scan()
    old = repository.get("a")
    if not by_notice:  # a change before the watch begins
        put(tmp_path, "a", "new weights")
    watching = asyncio.create_task(repository.watch(rescan_ms=100 if not by_notice else 5_000))
    stamp = 0
    while repository.get("a") is old:
        await asyncio.sleep(0.05)
        if by_notice:  # changes before the watch begins are not notified
            stamp += 1
            os.utime(tmp_path / "a" / "model.onnx", (stamp, stamp))
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
