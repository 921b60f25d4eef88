"""What a backend's own health says of its start, and when the gateway is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from services.gateway.settings.serving import ReadySettings
from services.gateway.upstream.readiness import Readiness
from services.gateway.upstream.start import Notice, Start
from tests.clock import loop_clock, on_paused_loop
from tests.unit.gateway.scripted import ScriptedLlm, fleet

READY, AWAY = grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE
SERVING, LOADING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
UNREACHED_S = 60.0


def error(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata())


class Backend:
    """A channel to a process whose connection and health change as a test says."""

    def __init__(self) -> None:
        self.state, self.health, self.watches = AWAY, LOADING, 0
        self._changed = asyncio.Event()

    def unary_stream(self, *_: object, **serializers: object) -> Callable[[object], Backend]:
        return lambda _: self

    def become(self, state: Any = None, health: Any = None) -> None:
        self.state, self.health = state or self.state, self.health if health is None else health
        self._changed.set()

    def get_state(self, try_to_connect: bool = False) -> Any:
        return self.state

    async def wait_for_state_change(self, state: Any) -> None:
        while self.state is state:
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def __aiter__(self) -> Any:
        self.watches += 1
        said = None
        while True:
            if self.state is not READY:
                raise error(grpc.StatusCode.UNAVAILABLE)
            if isinstance(self.health, grpc.StatusCode):
                raise error(self.health)
            if self.health != said:
                said = self.health
                yield health_pb2.HealthCheckResponse(status=said)
            await asyncio.sleep(0.1)

    def cancel(self) -> None:
        pass


def followed(*steps: tuple[float, dict[str, Any] | None], unreached_s: float = UNREACHED_S) -> list[tuple[bool, bool]]:
    """(starting, served) after each step: what the backend becomes, and so many seconds."""

    async def main() -> list[tuple[bool, bool]]:
        backend, start, seen = Backend(), Start(Notice()), []
        task = asyncio.create_task(start.follow(backend, unreached_s))  # type: ignore[arg-type]
        for seconds, change in steps:
            if change:
                backend.become(**change)
            await asyncio.sleep(seconds)
            seen.append((start.starting, start.served))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return seen

    return on_paused_loop(main())


def test_a_service_that_loads_is_starting_until_its_health_says_serving() -> None:
    seen = followed((1, {"state": READY}), (100, None), (1, {"health": SERVING}), (1, {"health": LOADING}))
    assert seen == [(True, False), (True, False), (False, True), (False, True)], "it drains at last"


def test_one_that_has_never_been_reached_is_starting_for_a_while_alone() -> None:
    assert followed((59, None), (2, None)) == [(True, False), (False, False)]
    assert followed((1, None), unreached_s=0) == [(False, False)]


def test_one_that_is_reached_late_is_starting_all_the_same() -> None:
    assert followed((61, None), (1, {"state": READY})) == [(False, False), (True, False)]


def test_one_that_dies_while_it_loads_is_away() -> None:
    assert followed((1, {"state": READY}), (1, {"state": AWAY})) == [(True, False), (False, False)]


def test_one_that_comes_again_is_starting_again() -> None:
    seen = followed(
        (1, {"state": READY, "health": SERVING}),
        (1, {"state": AWAY, "health": LOADING}),
        (1, {"state": READY}),
        (1, {"health": SERVING}),
    )
    assert seen == [(False, True), (False, True), (True, True), (False, True)]


@pytest.mark.parametrize(
    "health", [grpc.StatusCode.UNIMPLEMENTED, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN], ids=str
)
def test_one_without_health_serves(health: Any) -> None:
    assert followed((1, {"state": READY, "health": health})) == [(False, True)]


def test_a_call_that_is_told_so_has_health_asked_again() -> None:
    async def main() -> list[Any]:
        backend, start = Backend(), Start(Notice())
        start.refused()
        seen: list[Any] = [start.starting]  # nobody follows it: nobody would take that back
        task = asyncio.create_task(start.follow(backend, UNREACHED_S))  # type: ignore[arg-type]
        backend.become(READY, SERVING)
        await asyncio.sleep(1)
        watches = backend.watches
        start.refused()
        seen.append(start.starting)
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return [*seen, start.starting, backend.watches - watches]

    assert on_paused_loop(main()) == [False, True, False, 1]


def test_a_gateway_is_ready_when_one_model_has_served_and_stays_so() -> None:
    behind = fleet(small=ScriptedLlm(), large=[ScriptedLlm(), ScriptedLlm()])
    readiness = Readiness(behind, ReadySettings().models, {})
    assert readiness.missing() == ["llm"]
    behind.pools["large"].replicas[1].start.started()
    assert readiness.missing() == []
    behind.pools["large"].replicas.clear()
    assert readiness.missing() == []


def test_an_answer_of_a_model_says_that_it_has_served() -> None:
    behind = fleet(small=ScriptedLlm())
    behind.pools["small"].answered(0.1)
    assert Readiness(behind, 1, {}).missing() == []


@pytest.mark.parametrize(("models", "missing"), [(0, []), (1, []), (2, ["llm"]), (3, ["llm"])])
def test_a_gateway_may_want_none_or_several_of_its_models(models: int, missing: list[str]) -> None:
    behind = fleet(small=ScriptedLlm(), large=ScriptedLlm())
    behind.pools["small"].replicas[0].start.started()
    readiness = Readiness(behind, models, {})
    assert readiness.missing() == missing
    behind.pools["large"].replicas[0].start.started()
    assert readiness.missing() == [], "three of two are two"


def test_it_waits_for_the_services_that_it_must_have() -> None:
    async def main() -> SimpleNamespace:
        behind = fleet(loop_clock, small=ScriptedLlm())
        vision = Start(behind.notice)
        readiness = Readiness(behind, 1, {"vision": vision})
        waiting = asyncio.create_task(readiness.wait())
        behind.pools["small"].replicas[0].start.started()
        await asyncio.sleep(1)
        before = SimpleNamespace(missing=readiness.missing(), done=waiting.done())
        vision.started()
        await waiting
        return before

    assert on_paused_loop(main()) == SimpleNamespace(missing=["vision"], done=False)
