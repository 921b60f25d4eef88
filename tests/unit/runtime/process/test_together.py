"""Several services in one process: the order in which they start, start again and stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from google.protobuf.descriptor import ServiceDescriptor

from hedgerow.gateway.v1 import gateway_pb2
from hedgerow.llm.v1 import llm_pb2
from launcher.processes import check_health, free_ports
from services.gateway.upstream.llm import Llm
from services.runtime.errors import Unavailable
from services.runtime.process.config import ServiceSettings
from services.runtime.process.ports import PortTaken, claim
from services.runtime.process.serve import Service
from services.runtime.process.together import HostedService, Together
from services.runtime.rpc.boundary import Call
from services.runtime.security import tls
from tests.waiting import until

LLM = llm_pb2.DESCRIPTOR.services_by_name["LLMService"]
GATEWAY = gateway_pb2.DESCRIPTOR.services_by_name["GatewayService"]


class FrontSettings(ServiceSettings):
    """Those of a front with an HTTP API, which it does not serve here."""

    http_address: str = ""
    workers: int = 1

    @property
    def processes(self) -> int:
        return self.workers

    @property
    def shared_addresses(self) -> tuple[str, ...]:
        return "address", "http_address"


class Model:
    """Answers with its context."""

    def __init__(self, tokens: int):
        self.tokens = tokens

    async def GetModel(self, request: llm_pb2.GetModelRequest, call: Call) -> llm_pb2.GetModelResponse:
        return llm_pb2.GetModelResponse(context_tokens=self.tokens)


class Scene:
    """Services that write down when they start and stop. `dial` is that of the front."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.dial: tls.Dial | None = None
        self.held: asyncio.Event | None = None  # the front starts once it is set
        self.ports = free_ports(4)

    def llm(self, name: str, port: int, tokens: int = 1, fails: bool = False, **more: Any) -> HostedService:
        @asynccontextmanager
        async def assemble(settings: ServiceSettings) -> AsyncIterator[Mapping[ServiceDescriptor, Any]]:
            with self._noted(name):
                if fails:
                    raise RuntimeError("broken")
                yield {LLM: Model(settings.grace_ms)}

        return self._member(name, "llm", LLM, assemble, port, grace_ms=tokens, **more)

    def gateway(self, port: int = 3, lame_duck_ms: int = 0, **more: Any) -> HostedService:
        return self._member("gateway", "gateway", GATEWAY, self._assemble, port, lame_duck_ms=lame_duck_ms, **more)

    def address(self, port: int) -> str:
        return f"127.0.0.1:{self.ports[port]}"

    @asynccontextmanager
    async def _assemble(
        self, settings: ServiceSettings, dialing: tls.Dialing
    ) -> AsyncIterator[Mapping[ServiceDescriptor, Any]]:
        with self._noted("gateway"):
            if self.held:
                await self.held.wait()
            async with dialing(None) as self.dial:
                yield {GATEWAY: object()}

    def _member(
        self, name: str, kind: str, descriptor: ServiceDescriptor, assemble: Callable[..., Any], port: int, **more: Any
    ) -> HostedService:
        known = self.__dict__.setdefault("services", {})  # a member that is the same is not started again
        service = known.setdefault(name, Service(kind, ServiceSettings, [descriptor], assemble))
        settings = FrontSettings if kind == "gateway" else ServiceSettings
        return HostedService(name, service, settings(address=self.address(port), blocked_loop_ms=0, **more))

    def _noted(self, name: str) -> _Noted:
        return _Noted(self.done, name)


class _Noted:
    def __init__(self, done: list[str], name: str):
        self._done, self._name = done, name

    def __enter__(self) -> None:
        self._done.append(f"+{self._name}")

    def __exit__(self, *_: object) -> None:
        self._done.append(f"-{self._name}")


async def test_all_start_at_once_and_the_front_is_stopped_first() -> None:
    scene = Scene()
    async with asyncio.TaskGroup() as group:
        together = Together(group)
        await together.bring([scene.llm("a", 0), scene.llm("b", 1), scene.gateway()])
        assert sorted(scene.done) == ["+a", "+b", "+gateway"]
        for port in (0, 1, 3):
            assert await check_health(scene.address(port), 20) == "SERVING"
        await together.stop()
    assert scene.done[3] == "-gateway"
    assert sorted(scene.done[4:]) == ["-a", "-b"]
    assert await check_health(scene.address(0), 0.5) == "UNREACHABLE"


async def test_what_is_new_starts_before_what_has_changed_starts_again_and_what_is_gone_stops_last() -> None:
    scene = Scene()
    async with asyncio.TaskGroup() as group:
        together = Together(group)
        await together.bring([scene.llm("a", 0), scene.llm("b", 1), scene.gateway()])
        scene.done.clear()
        await together.bring([scene.llm("a", 0), scene.llm("c", 2), scene.gateway(lame_duck_ms=1)])
        assert scene.done == ["+c", "+gateway", "-gateway", "-b"], "the front serves until the other does"
        await together.stop()


async def test_the_front_reaches_a_service_that_has_started_again_by_the_same_channel() -> None:
    scene = Scene()
    async with asyncio.TaskGroup() as group:
        together = Together(group)
        await together.bring([scene.llm("a", 0, tokens=11), scene.gateway()])
        assert scene.dial
        async with scene.dial(scene.address(0), "llm") as channel, scene.dial(scene.address(1), "llm") as beyond:
            assert await Llm(channel, "a").context_tokens(1) == 11
            with pytest.raises(Unavailable):  # nothing of this process is there, nor anything else
                await Llm(beyond, "b").context_tokens(1)
            await together.bring([scene.llm("a", 0, tokens=12), scene.gateway()])
            assert await Llm(channel, "a").context_tokens(1) == 12
        assert "-gateway" not in scene.done
        await together.stop()


async def test_a_service_that_fails_ends_all_of_them() -> None:
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
        scene.held = asyncio.Event()
        bringing = asyncio.create_task(together.bring([scene.gateway(lame_duck_ms=1)]))
        await until(lambda: scene.done.count("+gateway") == 2)
        refusal = f"gateway address: {scene.address(3)} cannot be had: Address already in use"
        with pytest.raises(PortTaken, match=refusal):
            await other.bring([second.llm("a", 0), second.gateway()])
        scene.held.set()
        await bringing
        with pytest.raises(PortTaken, match=refusal):
            await other.bring([second.llm("a", 0), second.gateway()])
        assert second.done == [], "nothing has started"
        assert await check_health(scene.address(3), 20) == "SERVING"
        await together.bring([scene.gateway(port=2)])
        await other.bring([second.gateway()])
        assert second.done == ["+gateway"], "a port that was left is free"
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
    async with asyncio.TaskGroup() as group, httpx.AsyncClient() as client:
        together = Together(group)
        await together.bring([scene.gateway(metrics_address=scene.address(2))])
        with pytest.raises(ValueError, match="worker 1: ended with exit code 1"):
            await together.bring([scene.gateway(port=1, workers=13, metrics_address=scene.address(2))])
        assert scene.done == ["+gateway", "+13 workers", "-13 workers"]
        assert await check_health(scene.address(3), 20) == "SERVING"
        assert (await client.get(f"http://{scene.address(2)}/readyz")).status_code == 200
        claim(scene.address(1)).close()  # the port of the order that failed is free again
        await together.bring([scene.gateway(workers=2)])
        with pytest.raises(ValueError, match="worker 1: port in use"):
            await together.bring([scene.gateway(workers=13)])
        await together.stop()
    assert scene.done[3:] == ["+2 workers", "-gateway", "-2 workers"]


@pytest.mark.parametrize("setting", ["http_address", "metrics_address"])
async def test_an_order_with_a_taken_port_for_http_or_metrics_changes_nothing(setting: str) -> None:
    scene = Scene()
    async with asyncio.TaskGroup() as group:
        together = Together(group)
        await together.bring([scene.llm("a", 0), scene.gateway(**{setting: scene.address(1)})])
        scene.done.clear()
        with socket.create_server(("127.0.0.1", scene.ports[2])):
            refusal = f"gateway {setting}: {scene.address(2)} cannot be had: Address already in use"
            with pytest.raises(PortTaken, match=refusal):
                await together.bring([scene.llm("b", 0), scene.gateway(**{setting: scene.address(2)})])
            assert scene.done == []
            assert await check_health(scene.address(3), 20) == "SERVING"
        await together.bring([scene.llm("a", 0), scene.gateway(**{setting: scene.address(2)})])
        assert scene.done == ["+gateway", "-gateway"], "the port is free now"
        await together.stop()


async def test_a_service_behind_the_front_is_refused_a_taken_port_for_metrics_too() -> None:
    scene = Scene()
    async with asyncio.TaskGroup() as group:
        together = Together(group)
        await together.bring([scene.llm("a", 0), scene.gateway(metrics_address=scene.address(1))])
        taken = scene.llm("a", 0, metrics_address=scene.address(1))
        with pytest.raises(PortTaken, match=f"a metrics_address: {scene.address(1)} cannot be had"):
            await together.bring([taken, scene.gateway(metrics_address=scene.address(1))])
        assert scene.done == ["+a", "+gateway"]
        await together.stop()


async def test_metrics_move_to_another_host_at_the_same_port() -> None:
    scene = Scene()
    async with asyncio.TaskGroup() as group, httpx.AsyncClient() as client:
        together = Together(group)
        await together.bring([scene.gateway(metrics_address=scene.address(2))])
        await together.bring([scene.gateway(metrics_address=f"127.0.0.2:{scene.ports[2]}")])
        assert (await client.get(f"http://127.0.0.2:{scene.ports[2]}/readyz")).status_code == 200
        await together.stop()


async def test_the_port_of_metrics_stays_open_while_the_front_is_exchanged() -> None:
    scene = Scene()

    async def ready(port: int) -> int:
        async with httpx.AsyncClient() as client:
            return (await client.get(f"http://{scene.address(port)}/readyz")).status_code

    async with asyncio.TaskGroup() as group:
        together = Together(group)
        await together.bring([scene.gateway(metrics_address=scene.address(2))])
        assert await ready(2) == 200
        scene.held = asyncio.Event()
        bringing = asyncio.create_task(
            together.bring([scene.gateway(lame_duck_ms=1, metrics_address=scene.address(2))])
        )
        await until(lambda: scene.done.count("+gateway") == 2)
        assert await ready(2) == 200, "the first one serves"
        scene.held.set()
        await bringing
        assert await ready(2) == 200, "the second one serves"
        await together.bring([scene.gateway(metrics_address=scene.address(1))])
        assert await ready(1) == 200
        with pytest.raises(httpx.ConnectError):
            await ready(2)
        await together.stop()
        with pytest.raises(httpx.ConnectError):
            await ready(1)


async def test_a_front_that_is_being_exchanged_when_the_process_ends_ends_too() -> None:
    scene = Scene()
    async with asyncio.TaskGroup() as group:
        together = Together(group)
        await together.bring([scene.gateway()])
        scene.held = asyncio.Event()
        bringing = asyncio.create_task(together.bring([scene.gateway(lame_duck_ms=1)]))
        await until(lambda: scene.done.count("+gateway") == 2)
        bringing.cancel()
        await asyncio.wait({bringing})
        scene.held.set()
        await together.stop()
    assert scene.done.count("-gateway") == 2
