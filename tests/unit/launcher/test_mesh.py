"""The start and the end of a mesh, with scripted processes."""

from __future__ import annotations

import asyncio
import fcntl
import socket
from contextlib import AsyncExitStack, closing
from errno import ENOLCK
from pathlib import Path
from unittest.mock import patch

import pytest

from hedgerow_cli.running import launcher_of
from launcher import supervisor
from launcher.mesh import RUNNING_FILE, Mesh, MeshError, PortInUse
from launcher.processes import ServiceFailed, ServiceSpec, free_port


class ScriptedProcess:
    """Serves, but for `bad`; and takes a while to stop."""

    pid = 1
    stopped: list[str]

    def __init__(self, spec: ServiceSpec, log_dir: Path):
        self._name = spec.name

    async def wait_serving(self, timeout_s: float) -> None:
        if self._name == "bad":
            raise ServiceFailed("bad ended with exit code 3")

    async def wait(self) -> int:
        await asyncio.Event().wait()
        return 0

    async def stop(self) -> int:
        await asyncio.sleep(1)
        self.stopped.append(self._name)
        return 0


def specs(*names: str) -> list[ServiceSpec]:
    return [ServiceSpec(name, f"services.{name}", f"127.0.0.1:{free_port()}") for name in names]


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "ServiceProcess", ScriptedProcess)
    ScriptedProcess.stopped = []


@pytest.mark.paused
async def test_a_cancellation_while_a_failed_start_ends_neither_hides_the_failure_nor_leaves_a_service(
    tmp_path: Path,
) -> None:
    starting = asyncio.create_task(Mesh(specs("bad", "cache", "gateway"), tmp_path).__aenter__())
    await asyncio.sleep(0.5)
    starting.cancel()
    with pytest.raises(ServiceFailed, match="exit code 3"):
        await starting
    assert sorted(ScriptedProcess.stopped) == ["bad", "cache", "gateway"]


async def test_the_logs_of_the_last_mesh_stay_where_a_port_is_in_use(tmp_path: Path) -> None:
    first, second = specs("cache", "gateway")
    log = tmp_path / "logs" / "cache.log"
    log.parent.mkdir()
    log.write_text("why it ended")
    with closing(socket.create_server(("127.0.0.1", int(second.port)))), pytest.raises(PortInUse):
        await Mesh([first, second], tmp_path).__aenter__()
    assert log.read_text() == "why it ended"


async def test_a_file_system_without_locks_is_refused_as_the_state_folder(tmp_path: Path) -> None:
    with (
        patch.object(fcntl, "flock", side_effect=OSError(ENOLCK, "No locks available")),
        pytest.raises(MeshError, match="cannot be the state folder: No locks available; --state-dir names another"),
    ):
        await Mesh(specs("gateway"), tmp_path).__aenter__()


async def test_a_log_that_cannot_be_removed_is_named(tmp_path: Path) -> None:
    (tmp_path / "logs" / "gateway.log").mkdir(parents=True)
    with pytest.raises(MeshError, match=r"gateway\.log cannot be written: "):
        await Mesh(specs("gateway"), tmp_path).__aenter__()


@pytest.mark.paused
async def test_a_listing_that_cannot_be_written_or_removed_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / RUNNING_FILE).mkdir()
    async with Mesh(specs("gateway"), tmp_path):
        pass
    assert ScriptedProcess.stopped == ["gateway"]


async def test_on_a_full_disk_the_listing_of_a_killed_mesh_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / RUNNING_FILE).write_text('{"pid": 1, "services": []}')
    (tmp_path / f"{RUNNING_FILE}.new").mkdir()  # cannot be written, as on a full disk
    async with AsyncExitStack() as stack:
        Mesh(specs("gateway"), tmp_path)._claim(stack)
        assert launcher_of(tmp_path) is None
