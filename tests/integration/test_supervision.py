"""A mesh of real processes: started together, kept running, stopped in order. The services are scripted."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from launcher import processes
from launcher.mesh import RUNNING_FILE, Mesh, MeshError, PortInUse
from launcher.processes import ServiceFailed, ServiceProcess, ServiceSpec, check, check_health, free_ports
from launcher.replicas import redis_binary
from launcher.supervisor import Change
from tests.forked import forking_meshes
from tests.integration.running_up import runs
from tests.waiting import until


@pytest.fixture(autouse=True)
def _forked() -> Iterator[None]:
    with forking_meshes():
        yield


def scripted(*names: str, **environment: str) -> list[ServiceSpec]:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(len(names))]
    return [
        ServiceSpec(name, "tests.integration.scripted_service", at, {"SCRIPTED_ADDRESS": at, **environment})
        for name, at in zip(names, addresses, strict=True)
    ]


class Changes:
    """Records changes of processes, and waits for one."""

    def __init__(self) -> None:
        self.seen: list[Change] = []
        self._more = asyncio.Event()

    def __call__(self, change: Change) -> None:
        self.seen.append(change)
        self._more.set()

    def of(self, state: str) -> list[str]:
        return [change.service for change in self.seen if change.state == state]

    async def reach(self, state: str, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.of(state)) < count:
                self._more.clear()
                await self._more.wait()


async def test_all_serve_inside_and_none_is_left_after(tmp_path: Path) -> None:
    changes, specs = Changes(), scripted("back", "other", "front")
    async with Mesh(specs, tmp_path, changes) as mesh:
        assert [await check_health(spec.address, 20) for spec in specs] == ["SERVING"] * 3
        pids = [service.process.pid for service in mesh.services if service.process]
        listed = json.loads((tmp_path / RUNNING_FILE).read_text())["services"]
        assert listed == [
            {"name": spec.name, "address": spec.address, "speaks": "grpc", "pid": pid}
            for spec, pid in zip(specs, pids, strict=True)
        ]
    assert changes.of("stopped")[0] == "front"
    assert not (tmp_path / RUNNING_FILE).exists()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_service_that_dies_is_started_again_and_said_so(tmp_path: Path) -> None:
    changes, specs = Changes(), scripted("back", "front")
    async with Mesh(specs, tmp_path, changes) as mesh:
        victim = mesh.services[0].process
        assert victim is not None
        os.kill(victim.pid, signal.SIGKILL)
        await changes.reach("serving", 3)
        again = mesh.services[0].process
        assert again is not None
        assert again.pid != victim.pid
        assert await check_health(specs[0].address, 20) == "SERVING"
        assert json.loads((tmp_path / RUNNING_FILE).read_text())["services"][0]["pid"] == again.pid
    [died] = [change for change in changes.seen if change.state == "died"]
    assert died.service == "back"
    assert "exit code -9" in died.detail
    assert "scripted service serving" in died.detail  # the end of its log


async def test_a_service_that_cannot_start_stops_the_others_and_shows_its_log(tmp_path: Path) -> None:
    changes = Changes()
    specs = [*scripted("good"), *scripted("bad", SCRIPTED_EXIT_CODE="3")]
    with pytest.raises(ServiceFailed, match=r"bad ended with exit code 1:\nscripted to fail with 3"):
        async with Mesh(specs, tmp_path, changes):
            pass
    assert await check_health(specs[0].address, 0.5) == "UNREACHABLE"
    assert not (tmp_path / RUNNING_FILE).exists()


async def test_a_busy_port_is_named_before_anything_starts(tmp_path: Path) -> None:
    specs, changes = scripted("one", "two"), Changes()
    async with Mesh(specs[1:], tmp_path / "first"):
        with pytest.raises(PortInUse, match=f"port {specs[1].address.rpartition(':')[2]}, which two needs, is in use"):
            async with Mesh(specs, tmp_path / "second", changes):
                pass
    assert changes.seen == []


async def test_a_state_folder_belongs_to_one_mesh_which_writes_its_files_before_anything_starts(
    tmp_path: Path,
) -> None:
    changes, written = Changes(), tmp_path / "written"

    def write() -> None:
        assert changes.seen == []
        written.write_text("first")

    async with Mesh(scripted("one"), tmp_path, changes, write):
        assert written.exists()
        with pytest.raises(MeshError, match="another mesh uses"):
            async with Mesh(scripted("two"), tmp_path, changes, lambda: written.unlink()):
                pass
        assert (tmp_path / RUNNING_FILE).exists()
    assert written.exists()


@pytest.mark.parametrize("password", [False, True])
async def test_a_third_party_process_is_kept_running_too(tmp_path: Path, password: bool) -> None:
    [port] = free_ports(1)
    place = ("--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path), "--save", "")
    command = (redis_binary(), *place, *(("--requirepass", "x") if password else ()))
    spec = ServiceSpec("redis", "", f"127.0.0.1:{port}", command=command, speaks="redis")
    changes = Changes()
    async with Mesh([spec], tmp_path, changes) as mesh:
        assert await check("redis", spec.address, 1) == "SERVING"
        assert mesh.services[0].process
        os.kill(mesh.services[0].process.pid, signal.SIGKILL)
        await changes.reach("serving", 2)
    assert await check("redis", spec.address, 1) == "UNREACHABLE"


async def test_a_redis_that_loads_its_data_does_not_serve_yet() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"-LOADING Redis is loading the dataset in memory\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        assert await check("redis", f"{host}:{port}", 5) == "NOT_SERVING"


async def test_before_stop_runs_while_the_service_still_serves(tmp_path: Path) -> None:
    [spec], asked = scripted("one"), []

    async def drain() -> None:
        asked.append(await check_health(spec.address, 20))

    async with Mesh([replace(spec, before_stop=drain)], tmp_path):
        assert asked == []
    assert asked == ["SERVING"]


async def test_a_service_is_stopped_also_when_what_was_asked_for_before_fails(tmp_path: Path) -> None:
    one, two = scripted("one", "two")

    async def fail() -> None:
        raise ValueError("no answer")

    async with Mesh([one, replace(two, before_stop=fail)], tmp_path):
        pass
    assert [await check_health(spec.address, 0.5) for spec in (one, two)] == ["UNREACHABLE"] * 2


async def test_a_deleted_log_and_an_unwritable_list_end_no_mesh(tmp_path: Path) -> None:
    changes, specs = Changes(), scripted("back", "front")
    async with Mesh(specs, tmp_path, changes) as mesh:
        back, front = (service.process for service in mesh.services)
        assert back
        assert front
        back.log.unlink()
        (tmp_path / f"{RUNNING_FILE}.new").mkdir()
        os.kill(back.pid, signal.SIGKILL)
        await changes.reach("serving", 3)
        assert front.exit_code is None
    [died] = [change for change in changes.seen if change.state == "died"]
    serving = [change for change in changes.seen if change.state == "serving"][-1]
    assert "back.log cannot be read" in died.detail
    assert f"{RUNNING_FILE} cannot be written" in serving.detail


async def test_killing_the_starter_of_a_mesh_leaves_no_process(tmp_path: Path) -> None:
    starter = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.scripted_mesh", str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert starter.stdout
    children = [psutil.Process(int(pid)) for pid in (await starter.stdout.readline()).split()]
    assert len(children) == 2
    starter.kill()
    await starter.wait()
    await until(lambda: not any(map(runs, children)), 30)


async def test_an_error_inside_comes_out_as_it_is_and_stops_the_mesh(tmp_path: Path) -> None:
    specs = scripted("one")
    with pytest.raises(KeyError, match="mine"):
        async with Mesh(specs, tmp_path):
            raise KeyError("mine")
    assert await check_health(specs[0].address, 0.5) == "UNREACHABLE"


async def test_giving_up_while_services_start_leaves_nothing(tmp_path: Path) -> None:
    changes, specs = Changes(), scripted("one", "two")

    async def start() -> None:
        async with Mesh(specs, tmp_path, changes):
            await asyncio.Event().wait()

    task = asyncio.create_task(start())
    await changes.reach("starting", 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert changes.of("stopped")[0] == "two"
    assert sorted(changes.of("stopped")) == ["one", "two"]


@pytest.mark.parametrize(("grace_ms", "code"), [("0", -signal.SIGKILL), ("20000", 0)])
async def test_a_process_is_killed_once_it_has_had_its_grace(
    grace_ms: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "SLACK_S", 0.05)
    last_call = "trap 'sleep 0.5; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    environment = {"HEDGEROW_LLM_GRACE_MS": grace_ms}
    command = ("bash", "-c", last_call)
    process = ServiceProcess(ServiceSpec("llm", "services.llm", "127.0.0.1:1", environment, command), tmp_path)
    await until(lambda: "ready" in process.tail())
    assert await process.stop() == code


async def test_the_group_of_a_process_gets_no_signal_once_its_end_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr("launcher.processes.os.killpg", lambda group, _: killed.append(group))
    process = ServiceProcess(ServiceSpec("one", "", "127.0.0.1:1", command=("true",)), tmp_path)
    await process.wait()
    await process.stop()
    assert killed == [process.pid]
