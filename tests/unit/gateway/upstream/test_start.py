"""The health of a starting backend, and the readiness of the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from services.gateway.settings.serving import ReadySettings
from services.gateway.upstream.readiness import Readiness
from services.gateway.upstream.start import Notice, Start
from tests.clock import loop_clock
from tests.unit.gateway.scripted import ScriptedLlm, fleet

pytestmark = pytest.mark.paused
READY, AWAY = grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE
CONNECTING = grpc.ChannelConnectivity.CONNECTING
SERVING, LOADING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
UNREACHED_S = 60.0


def error(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata())


class Backend:
    """A channel to a process whose connection and health change as a test says."""

    def __init__(self) -> None:
        self.state, self.health, self.watches, self.watched = AWAY, LOADING, 0, ""
        self._changed = asyncio.Event()

    def unary_stream(self, *_: object, **serializers: object) -> Callable[[object], Backend]:
        return self._watch

    def _watch(self, request: Any) -> Backend:
        self.watched = request.service
        return self

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


@asynccontextmanager
async def following(start: Start, backend: Backend, unreached_s: float = UNREACHED_S) -> AsyncIterator[None]:
    task = asyncio.create_task(start.follow(backend, unreached_s))  # type: ignore[arg-type]
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


LOADS, SERVES, NEITHER, COMES_AGAIN = (True, False), (False, True), (False, False), (True, True)
LOST = COMES_AGAIN
STEPS: dict[str, list[tuple[float, dict[str, Any], tuple[bool, bool]]]] = {
    "it loads, serves, and drains at last": [
        (1, {"state": READY}, LOADS),
        (100, {}, LOADS),
        (1, {"health": SERVING}, SERVES),
        (1, {"health": LOADING}, SERVES),
    ],
    "it is never reached": [(UNREACHED_S - 1, {}, LOADS), (2, {}, NEITHER)],
    "it is reached late": [(UNREACHED_S + 1, {}, NEITHER), (1, {"state": READY}, LOADS)],
    "it dies while it loads": [(1, {"state": READY}, LOADS), (1, {"state": AWAY}, LOADS), (UNREACHED_S, {}, NEITHER)],
    "it comes again": [
        (1, {"state": READY, "health": SERVING}, SERVES),
        (1, {"state": AWAY, "health": LOADING}, LOST),
        (1, {"state": READY}, COMES_AGAIN),
        (1, {"health": SERVING}, SERVES),
    ],
    "it does not come again": [
        (1, {"state": READY, "health": SERVING}, SERVES),
        (1, {"state": AWAY}, LOST),
        (UNREACHED_S, {}, SERVES),
        (1, {"state": READY}, SERVES),
        (1, {"state": CONNECTING}, LOST),
    ],
    "it has no health": [(1, {"state": READY, "health": grpc.StatusCode.UNIMPLEMENTED}, SERVES)],
    "its health is unknown": [(1, {"state": READY, "health": UNKNOWN}, SERVES)],
}


@pytest.mark.parametrize("name", STEPS)
async def test_a_backends_connection_and_health_say_whether_it_starts_and_has_served(name: str) -> None:
    """Each step: so many seconds after a change of the backend, what is known of it."""
    backend, start = Backend(), Start(Notice())
    async with following(start, backend):
        for seconds, change, known in STEPS[name]:
            backend.become(**change)
            await asyncio.sleep(seconds)
            assert (start.starting, start.served) == known


async def test_a_lost_connection_is_lost_until_its_health_says_that_it_loads_or_serves() -> None:
    backend, start = Backend(), Start(Notice())
    async with following(start, backend):
        lost = []
        for change in ({"health": SERVING}, {"state": READY}, {"state": AWAY, "health": LOADING}, {"state": READY}):
            backend.become(**change)
            await asyncio.sleep(1)
            lost.append(start.lost)
    assert lost == [False, False, True, False]


async def test_without_a_wait_an_unreached_backend_is_not_starting() -> None:
    start = Start(Notice())
    async with following(start, Backend(), unreached_s=0):
        await asyncio.sleep(1)
        assert not start.starting


async def test_a_call_refused_as_starting_has_health_checked_again() -> None:
    backend, start = Backend(), Start(Notice())
    start.refused()
    assert not start.starting, "a backend whose health is not followed would count as starting for ever"
    async with following(start, backend):
        backend.become(READY, SERVING)
        await asyncio.sleep(1)
        watches = backend.watches
        start.refused()
        assert start.starting
        await asyncio.sleep(1)
        assert (start.starting, backend.watches) == (False, watches + 1)


async def test_a_backend_whose_provider_cannot_be_reached_is_lost_for_a_time() -> None:
    backend, start = Backend(), Start(Notice())
    async with following(start, backend):
        backend.become(READY, SERVING)
        await asyncio.sleep(1)
        backend.become(health=LOADING)
        assert start.refused(), "the backend is expected to return"
        await asyncio.sleep(1)
        assert (start.starting, start.lost, backend.watched) == (True, True, "hedgerow.llm.v1.LLMService")
        await asyncio.sleep(UNREACHED_S)
        assert (start.starting, start.lost, start.refused()) == (False, False, False)
        backend.become(health=SERVING)
        await asyncio.sleep(1)
        assert (start.starting, start.lost, start.refused()) == (False, False, True)


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


def test_a_model_that_does_not_chat_makes_no_gateway_ready_and_is_not_waited_for() -> None:
    settings = {"llm_addresses": {"small": "a:1", "embed": "b:1"}, "serves": {"embed": ["embeddings"]}}
    behind = fleet(settings=settings, small=ScriptedLlm(), embed=ScriptedLlm())
    one, all_ = Readiness(behind, 1, {}), Readiness(behind, 2, {})
    behind.pools["embed"].replicas[0].start.started()
    assert one.missing() == ["llm"]
    behind.pools["embed"].replicas[0].start.served = False
    behind.pools["small"].replicas[0].start.started()
    assert (one.missing(), all_.missing()) == ([], [])


@pytest.mark.parametrize(("models", "missing"), [(0, []), (1, []), (2, ["llm"]), (3, ["llm"])])
def test_a_gateway_may_want_none_or_several_of_its_models(models: int, missing: list[str]) -> None:
    behind = fleet(small=ScriptedLlm(), large=ScriptedLlm())
    behind.pools["small"].replicas[0].start.started()
    readiness = Readiness(behind, models, {})
    assert readiness.missing() == missing
    behind.pools["large"].replicas[0].start.started()
    assert readiness.missing() == [], "a requirement of three models means both of two"


async def test_readiness_waits_for_required_services() -> None:
    behind = fleet(loop_clock, small=ScriptedLlm())
    vision = Start(behind.notice)
    readiness = Readiness(behind, 1, {"vision": vision})
    waiting = asyncio.create_task(readiness.wait())
    behind.pools["small"].replicas[0].start.started()
    await asyncio.sleep(1)
    assert (readiness.missing(), waiting.done()) == (["vision"], False)
    vision.started()
    await waiting
