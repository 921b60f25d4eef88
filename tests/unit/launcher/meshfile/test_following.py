"""A mesh is brought to what its file says, with as little as can be."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.meshfile import following
from launcher.meshfile.following import bring, follow
from launcher.processes import ServiceFailed, ServiceSpec


def spec(name: str, setting: str = "") -> ServiceSpec:
    return ServiceSpec(name, f"services.{name.partition('-')[0]}", "127.0.0.1:1", {"TOLD": setting})


@dataclass
class ScriptedMesh:
    """Does nothing, and writes down what it was asked to do."""

    specs: list[ServiceSpec]
    fails: str = ""
    done: list[str] = field(default_factory=list)

    @property
    def services(self) -> list[Any]:
        return [SimpleNamespace(spec=each) for each in self.specs]

    async def put(self, wanted: ServiceSpec, *, insist: bool = False) -> None:
        self.done.append(f"put {wanted.name}")
        self.specs = [each for each in self.specs if each.name != wanted.name]
        if wanted.name == self.fails and not insist:
            raise ServiceFailed(wanted.name)
        self.specs.append(wanted)

    async def remove(self, name: str) -> None:
        self.done.append(f"remove {name}")
        self.specs = [each for each in self.specs if each.name != name]


async def test_unchanged_services_are_not_restarted() -> None:
    mesh = ScriptedMesh([spec("cache"), spec("gateway")])
    assert await bring(mesh, [spec("cache"), spec("gateway")]) == []  # type: ignore[arg-type]
    assert mesh.done == []


async def test_changed_services_restart_one_by_one_and_the_front_last() -> None:
    mesh = ScriptedMesh([spec("router"), spec("llm-a-1"), spec("llm-a-2"), spec("gateway")])
    wanted = [spec("router"), spec("llm-a-1", "new"), spec("llm-a-2", "new"), spec("gateway", "new")]
    said = await bring(mesh, wanted)  # type: ignore[arg-type]
    assert mesh.done == ["put llm-a-1", "put llm-a-2", "put gateway"]
    assert said == ["llm-a-1 started again", "llm-a-2 started again", "gateway started again"]


async def test_new_services_serve_before_the_front_is_configured_and_removed_ones_stop_after() -> None:
    mesh = ScriptedMesh([spec("llm-old"), spec("gateway")])
    await bring(mesh, [spec("llm-new"), spec("gateway", "new")])  # type: ignore[arg-type]
    assert mesh.done == ["put llm-new", "put gateway", "remove llm-old"]


async def test_a_service_that_does_not_start_stops_the_change() -> None:
    mesh = ScriptedMesh([spec("router"), spec("gateway")], fails="router")
    with pytest.raises(ServiceFailed):
        await bring(mesh, [spec("router", "bad"), spec("gateway", "new")])  # type: ignore[arg-type]
    assert mesh.done == ["put router"]
    await bring(mesh, [spec("router"), spec("gateway")], insist=True)  # type: ignore[arg-type]
    assert mesh.done == ["put router", "put router"]


async def test_a_file_that_cannot_be_checked_for_a_moment_and_a_terminal_that_is_gone_end_no_mesh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, reported, enough = tmp_path / "mesh.yaml", list[str](), asyncio.Event()
    file.write_text("0")

    async def no_process(*_: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    def gone(line: str) -> None:
        reported.append(line)
        file.write_text(str(len(reported)))
        if len(reported) == 2:
            enough.set()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(following, "replanned", no_process)
    monkeypatch.setattr(following, "_LOOK_S", 0.0)
    current: Any = SimpleNamespace(text="", ports=None)
    mesh: Any = ScriptedMesh([spec("gateway")])
    tasks = [asyncio.create_task(follow(file, tmp_path, mesh, current, gone)), asyncio.create_task(enough.wait())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert not tasks[0].done(), tasks[0].exception()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all("temporarily unavailable" in line for line in reported)
    assert mesh.done == []


@pytest.mark.paused
async def test_a_service_that_starts_for_long_is_named_until_the_change_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, reported = tmp_path / "mesh.yaml", list[str]()
    file.write_text("new")
    current: Any = SimpleNamespace(text="old", specs=[spec("cache"), spec("gateway")])
    wanted: Any = SimpleNamespace(
        text="new", file=None, specs=[spec("cache", "new"), spec("gateway")], write_files=lambda _: None
    )

    async def replanned(*_: object) -> Any:
        return wanted

    class Slow(ScriptedMesh):
        async def put(self, wanted: ServiceSpec, *, insist: bool = False) -> None:
            await asyncio.sleep(25)
            await super().put(wanted, insist=insist)

    monkeypatch.setattr(following, "replanned", replanned)
    monkeypatch.setattr(following, "missing_models", lambda _: [])
    mesh: Any = Slow(list(current.specs))
    task = asyncio.create_task(follow(file, tmp_path, mesh, current, reported.append))
    await asyncio.sleep(60)
    task.cancel()
    await asyncio.wait([task])
    assert reported == [
        f"{file} is not in force after 10 s: cache starting; a later change waits",
        f"{file} is not in force after 20 s: cache starting; a later change waits",
        f"{file} is in force: cache started again",
    ]


@pytest.mark.paused
@pytest.mark.parametrize(
    ("later", "fails", "expected"),
    [
        ("revoked", "", ["model", "revoked"]),
        ("revoked", "cache", ["model", "revoked", "old", "revoked"]),
        ("other model", "", ["model"]),
    ],
    ids=["it starts", "the mesh goes back", "with another change of services"],
)
async def test_a_change_of_tenants_alone_does_not_wait_for_a_service_that_starts_for_long(
    later: str, fails: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, written = tmp_path / "mesh.yaml", list[str]()

    def plan(text: str, cache: str) -> Any:
        specs = [spec("cache", cache), spec("gateway")]
        return SimpleNamespace(text=text, file=None, specs=specs, write_files=lambda _: written.append(text))

    plans = {"model": plan("model", "new"), "revoked": plan("revoked", "new"), "other model": plan("", "newer")}

    async def replanned(*_: object) -> Any:
        return plans[file.read_text()]

    class Slow(ScriptedMesh):
        async def put(self, wanted: ServiceSpec, *, insist: bool = False) -> None:
            await asyncio.sleep(300)
            await super().put(wanted, insist=insist)

    monkeypatch.setattr(following, "replanned", replanned)
    monkeypatch.setattr(following, "missing_models", lambda _: [])
    current = plan("old", "")
    mesh: Any = Slow(list(current.specs), fails=fails)
    file.write_text("model")
    task = asyncio.create_task(follow(file, tmp_path, mesh, current, lambda _: None))
    await asyncio.sleep(50)
    file.write_text(later)
    await asyncio.sleep(300 if fails else 200)
    task.cancel()
    await asyncio.wait([task])
    assert written == expected
