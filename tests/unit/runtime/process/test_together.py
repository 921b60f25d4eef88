"""Several services in one process: the order in which they start, start again and stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from launcher.processes import check_health
from services.gateway.upstream.llm import Llm
from services.runtime.errors import Unavailable
from services.runtime.process.config import ServiceSettings
from services.runtime.process.ports import PortTaken, claim
from services.runtime.process.together import Together
from tests.unit.runtime.process.hosted import Scene, brought


async def test_all_start_at_once_and_the_front_is_stopped_first() -> None:
    scene = Scene()
    async with brought(scene.llm("a", 0), scene.llm("b", 1), scene.gateway()):
        assert sorted(scene.done) == ["+a", "+b", "+gateway"]
        for port in (0, 1, 3):
            assert await check_health(scene.address(port), 20) == "SERVING"
    assert scene.done[3] == "-gateway"
    assert sorted(scene.done[4:]) == ["-a", "-b"]
    assert await check_health(scene.address(0), 0.5) == "UNREACHABLE"


async def test_new_services_start_before_changed_ones_restart_and_removed_ones_stop_last() -> None:
    scene = Scene()
    async with brought(scene.llm("a", 0), scene.llm("b", 1), scene.gateway()) as together:
        scene.done.clear()
        await together.bring([scene.llm("a", 0), scene.llm("c", 2), scene.gateway(lame_duck_ms=1)])
        assert scene.done == ["+c", "+gateway", "-gateway", "-b"], "the old front serves until the new one does"


async def test_the_front_reaches_a_service_that_has_started_again_by_the_same_channel() -> None:
    scene = Scene()
    async with brought(scene.llm("a", 0, tokens=11), scene.gateway()) as together:
        assert scene.dial
        async with scene.dial(scene.address(0), "llm") as channel, scene.dial(scene.address(1), "llm") as beyond:
            assert await Llm(channel, "a").context_tokens(1) == 11
            with pytest.raises(Unavailable):  # nothing of this process is there, nor anything else
                await Llm(beyond, "b").context_tokens(1)
            await together.bring([scene.llm("a", 0, tokens=12), scene.gateway()])
            assert await Llm(channel, "a").context_tokens(1) == 12
        assert "-gateway" not in scene.done


async def test_a_failing_service_ends_all_services() -> None:
    scene = Scene()

    async def serve() -> None:
        async with asyncio.TaskGroup() as group:
            await Together(group).bring([scene.llm("a", 0), scene.llm("b", 1, fails=True), scene.gateway()])
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await serve()
    assert caught.group_contains(RuntimeError, match="broken")
    assert {each[1:] for each in scene.done if each[0] == "-"} == {each[1:] for each in scene.done if each[0] == "+"}


async def test_a_second_process_cannot_have_the_port_of_the_front_while_it_is_exchanged_nor_after() -> None:
    scene, second = Scene(), Scene()
    second.ports = scene.ports
    async with asyncio.TaskGroup() as group:
        together, other = Together(group), Together(group)
        await together.bring([scene.gateway()])
        bringing = await scene.begin_exchange(together)
        refusal = f"gateway address: cannot listen at {scene.address(3)}: Address already in use"
        with pytest.raises(PortTaken, match=refusal):
            await other.bring([second.llm("a", 0), second.gateway()])
        scene.going.set()
        await bringing
        with pytest.raises(PortTaken, match=refusal):
            await other.bring([second.llm("a", 0), second.gateway()])
        assert second.done == [], "a service was started although its port was taken"
        assert await check_health(scene.address(3), 20) == "SERVING"
        await together.bring([scene.gateway(port=2)])
        await other.bring([second.gateway()])
        assert second.done == ["+gateway"], "a port is free after its process has moved"
        await together.stop()
        await other.stop()


class ScriptedWorkers:
    """Workers that write down what is done with them. They come to serve unless their number is in `broken`."""

    done: list[str]
    broken: set[int]

    def __init__(self, given: Mapping[str, Any], settings: ServiceSettings, claims: Any):
        self.stop, self._count = asyncio.Event(), settings.processes

    async def run(self) -> int:
        self.done.append(f"+{self._count} workers")
        await self.stop.wait()
        self.done.append(f"-{self._count} workers")
        return 0

    async def started(self) -> None:
        await asyncio.sleep(0)
        if self._count in self.broken:
            raise ValueError("worker 1: ended with exit code 1")

    async def bring(self, given: Mapping[str, Any], settings: ServiceSettings) -> None:
        if settings.processes in self.broken:
            raise ValueError("worker 1: port in use")
        self._count = settings.processes
        self.done.append(f"{self._count} workers")


@pytest.fixture
def scene_of_workers(monkeypatch: pytest.MonkeyPatch) -> Scene:
    scene = Scene()
    monkeypatch.setattr("services.runtime.process.together.Workers", ScriptedWorkers)
    monkeypatch.setattr(ScriptedWorkers, "done", scene.done, raising=False)
    monkeypatch.setattr(ScriptedWorkers, "broken", {13}, raising=False)
    return scene


async def test_another_number_of_workers_serves_before_those_that_are_too_many_stop(scene_of_workers: Scene) -> None:
    scene = scene_of_workers
    async with asyncio.TaskGroup() as group:
        together = Together(group)
        for count in (1, 2, 2, 3, 1):
            await together.bring([scene.llm("a", 0), scene.gateway(workers=count, metrics_address=scene.address(2))])
        await together.stop()
    both = ["+gateway", "+2 workers", "-gateway", "3 workers", "+gateway", "-3 workers", "-gateway"]
    assert [each for each in scene.done if each[1:] != "a"] == both


async def test_workers_that_do_not_come_to_serve_leave_the_front_as_it_was(scene_of_workers: Scene) -> None:
    scene = scene_of_workers
    async with brought(scene.gateway(metrics_address=scene.address(2))) as together, httpx.AsyncClient() as client:
        with pytest.raises(ValueError, match="worker 1: ended with exit code 1"):
            await together.bring([scene.gateway(port=1, workers=13, metrics_address=scene.address(2))])
        assert scene.done == ["+gateway", "+13 workers", "-13 workers"]
        assert await check_health(scene.address(3), 20) == "SERVING"
        assert (await client.get(f"http://{scene.address(2)}/readyz")).status_code == 200
        claim(scene.address(1)).close()  # the port of the order that failed is free again
        await together.bring([scene.gateway(workers=2)])
        with pytest.raises(ValueError, match="worker 1: port in use"):
            await together.bring([scene.gateway(workers=13)])
    assert scene.done[3:] == ["+2 workers", "-gateway", "-2 workers"]


@pytest.mark.parametrize("setting", ["http_address", "metrics_address"])
async def test_an_order_with_a_taken_port_for_http_or_metrics_changes_nothing(setting: str) -> None:
    scene = Scene()
    async with brought(scene.llm("a", 0), scene.gateway(**{setting: scene.address(1)})) as together:
        scene.done.clear()
        with socket.create_server(("127.0.0.1", scene.ports[2])):
            refusal = f"gateway {setting}: cannot listen at {scene.address(2)}: Address already in use"
            with pytest.raises(PortTaken, match=refusal):
                await together.bring([scene.llm("b", 0), scene.gateway(**{setting: scene.address(2)})])
            assert scene.done == []
            assert await check_health(scene.address(3), 20) == "SERVING"
        await together.bring([scene.llm("a", 0), scene.gateway(**{setting: scene.address(2)})])
        assert scene.done == ["+gateway", "-gateway"], "the port is free now"


async def test_a_service_behind_the_front_is_refused_a_taken_port_for_metrics_too() -> None:
    scene = Scene()
    async with brought(scene.llm("a", 0), scene.gateway(metrics_address=scene.address(1))) as together:
        taken = scene.llm("a", 0, metrics_address=scene.address(1))
        with pytest.raises(PortTaken, match=f"a metrics_address: cannot listen at {scene.address(1)}"):
            await together.bring([taken, scene.gateway(metrics_address=scene.address(1))])
        assert scene.done == ["+a", "+gateway"]


async def test_metrics_move_to_another_host_at_the_same_port() -> None:
    scene = Scene()
    async with brought(scene.gateway(metrics_address=scene.address(2))) as together, httpx.AsyncClient() as client:
        await together.bring([scene.gateway(metrics_address=f"127.0.0.2:{scene.ports[2]}")])
        assert (await client.get(f"http://127.0.0.2:{scene.ports[2]}/readyz")).status_code == 200


async def test_the_port_of_metrics_stays_open_while_the_front_is_exchanged() -> None:
    scene = Scene()

    async def ready(port: int) -> int:
        async with httpx.AsyncClient() as client:
            return (await client.get(f"http://{scene.address(port)}/readyz")).status_code

    async with brought(scene.gateway(metrics_address=scene.address(2))) as together:
        assert await ready(2) == 200
        bringing = await scene.begin_exchange(together, metrics_address=scene.address(2))
        assert await ready(2) == 200, "the first one serves"
        scene.going.set()
        await bringing
        assert await ready(2) == 200, "the second one serves"
        await together.bring([scene.gateway(metrics_address=scene.address(1))])
        assert await ready(1) == 200
        with pytest.raises(httpx.ConnectError):
            await ready(2)
    with pytest.raises(httpx.ConnectError):
        await ready(1)


async def test_a_front_that_is_being_exchanged_when_the_process_ends_ends_too() -> None:
    scene = Scene()
    async with brought(scene.gateway()) as together:
        bringing = await scene.begin_exchange(together)
        bringing.cancel()
        await asyncio.wait({bringing})
        scene.going.set()
    assert scene.done.count("-gateway") == 2
