"""The supervisor of services, with scripted processes."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from launcher import processes, supervisor
from launcher.grace import SLACK_S
from launcher.processes import ServiceFailed, ServiceProcess, ServiceSpec, free_port
from launcher.supervisor import Change, Supervisor
from tests.clock import on_paused_loop


class ScriptedProcess:
    """Lives for the next of `lives` seconds, the last one again and again. Where it says None it cannot be started."""

    lives: list[float | None]
    started_at: list[float]

    def __init__(self, spec: ServiceSpec, log_dir: Path):
        life_s = self.lives[min(len(self.started_at), len(self.lives) - 1)]
        self.started_at.append(asyncio.get_running_loop().time())
        if life_s is None:
            raise OSError(28, "No space left on device")
        self._life_s = life_s

    async def wait_serving(self, timeout_s: float) -> None:
        pass

    async def wait(self) -> int:
        await asyncio.sleep(self._life_s)
        return 1

    def tail(self) -> str:
        return ""

    async def stop(self) -> int:
        return 1


def started(
    lives: list[float | None], seconds: float, report: supervisor.Report = lambda _: None, *, first: bool = True
) -> list[float]:
    """After how many seconds each process of a service was started that is kept running. `first`: it has a process at
    the beginning."""
    ScriptedProcess.lives, ScriptedProcess.started_at = lives, []

    async def main() -> float:
        began = asyncio.get_running_loop().time()
        service = Supervisor(ServiceSpec("one", "services.one", f"127.0.0.1:{free_port()}"), Path(), report)
        keeper = asyncio.create_task(service.keep_running(await service.start() if first else None))
        await asyncio.wait([keeper], timeout=seconds)
        assert not keeper.done(), keeper.exception()
        keeper.cancel()
        return began

    with patch.object(supervisor, "ServiceProcess", ScriptedProcess):
        began = on_paused_loop(main())
    return [round(at - began, 1) for at in ScriptedProcess.started_at]


@pytest.mark.parametrize(
    ("lives", "seconds", "starts"),
    [
        ([0.0], 20, [0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 11.3, 16.3]),
        ([0.0, 0.0, 0.0, 100.0, 0.0], 110, [0, 0.1, 0.3, 0.7, 100.8, 101.0, 101.4, 102.2, 103.8, 107.0]),
        ([0.0, None, None, 100.0], 20, [0, 0.1, 0.3, 0.7]),
    ],
    ids=["dies again and again", "lived for long", "cannot be started for a while"],
)
def test_a_service_is_started_again_after_a_pause_that_grows(
    lives: list[float | None], seconds: float, starts: list[float]
) -> None:
    assert started(lives, seconds) == starts


_FRONT, _SLOW, _QUICK = (
    ServiceSpec(service, f"services.{service}", "127.0.0.1:1", {f"HEDGEROW_{service.upper()}_GRACE_MS": grace})
    for service, grace in (("gateway", "60000"), ("llm", "30000"), ("cache", "0"))
)


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        (ServiceSpec("redis", "", "127.0.0.1:1", command=("redis-server",)), 5),
        (ServiceSpec("llm", "services.llm", "127.0.0.1:1"), 5),
        (_FRONT, 60),
        (ServiceSpec.together("all", [_QUICK, _SLOW, _FRONT]), 90),
    ],
    ids=["foreign", "usual grace", "own grace", "the front before the others"],
)
def test_a_process_has_its_services_grace_before_it_is_killed(spec: ServiceSpec, seconds: float) -> None:
    assert spec.stops_within_s == seconds + SLACK_S


def test_a_service_without_a_first_process_is_started_after_a_pause() -> None:
    assert started([None, 100.0], 20, first=False) == [0.1, 0.3]


def test_a_failing_listener_ends_no_service() -> None:
    def gone(change: Change) -> None:
        if change.state == "died":
            raise BrokenPipeError

    assert started([0.0, 100.0], 20, gone) == [0, 0.1]


async def test_a_port_that_another_process_has_is_waited_for_and_nothing_of_it_is_called_serving(
    tmp_path: Path,
) -> None:
    changes: list[Change] = []
    spec = ServiceSpec("one", "services.one", f"127.0.0.1:{free_port()}")
    service = Supervisor(spec, tmp_path, changes.append)
    host, _, port = spec.address.rpartition(":")
    with closing(socket.create_server((host, int(port)))), patch.object(supervisor, "ServiceProcess") as process:
        again = asyncio.create_task(service.keep_running(None))
        while not changes:
            await asyncio.sleep(0)
            assert not again.done()
        again.cancel()
    assert not process.called
    assert changes[0].state == "died"
    assert f"port {port} is in use" in changes[0].detail


async def test_a_process_that_has_ended_does_not_serve_even_if_its_port_answers(tmp_path: Path) -> None:
    spec = ServiceSpec("one", "", "127.0.0.1:1", command=("true",), speaks="redis")
    process = object.__new__(ServiceProcess)
    process.spec, process.log = spec, tmp_path / "gone.log"

    async def answers(*_: object) -> str:
        return "SERVING"

    with (
        patch.object(processes, "check", answers),
        patch.object(ServiceProcess, "exit_code", 1),
        pytest.raises(ServiceFailed, match=r"one ended with exit code 1:\n.*gone\.log cannot be read"),
    ):
        await process.wait_serving()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_is_free_unless_a_process_listens_there(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        taken = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"this machine has no {host}")
    with taken:
        address = f"[{host}]:{taken.getsockname()[1]}" if ":" in host else f"{host}:{taken.getsockname()[1]}"
        assert not processes.is_free(address)
    assert processes.is_free(address)


def test_warnings_of_a_start_are_read_from_its_log(tmp_path: Path) -> None:
    process = object.__new__(ServiceProcess)
    process.log = tmp_path / "llm.log"
    process.log.write_text(
        "no line of a log\n"
        "2026-11-26 15:02:51,828 INFO llm-small services.runtime.process.serve [-] serving\n"
        "2026-11-26 15:02:51,829 WARNING llm-small services.llm.providers.outages [-] "
        "model m at http://127.0.0.1:9/v1: away\n"
        "2026-11-26 15:02:51,832 WARNING cache services.cache.store [-] another service's\n"
    )
    assert process.warnings("services.llm") == ["model m at http://127.0.0.1:9/v1: away"]
