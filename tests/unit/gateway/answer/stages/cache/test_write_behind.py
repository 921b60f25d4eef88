from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hedgerow.cache.v1 import cache_pb2
from hedgerow.router.v1 import router_pb2
from services.gateway.answer.stages.cache import write_behind
from services.gateway.answer.stages.cache.l1 import L1Cache
from services.gateway.answer.stages.cache.write_behind import MayStore, WriteBehind
from services.gateway.upstream.cache import Known
from services.runtime.errors import Unavailable
from tests.clock import PausedClock
from tests.waiting import until

pytestmark = pytest.mark.paused


class HeldCache:
    """Keeps what it is given when it is let go."""

    def __init__(self, error: Exception | None = None, skips: bool = False):
        self.go, self.stores = asyncio.Event(), list[cache_pb2.StoreRequest]()
        self._error, self._skips = error, skips

    async def store(self, request: cache_pb2.StoreRequest, timeout_s: float) -> cache_pb2.StoreResponse:
        self.stores.append(request)
        await self.go.wait()
        if self._error:
            raise self._error
        if self._skips:
            return cache_pb2.StoreResponse(key=f"key of {request.question.model_class}", skipped=True)
        return cache_pb2.StoreResponse(key=f"key of {request.question.model_class}", ttl_ms=60_000)


class Scene:
    def __init__(self, max_bytes: int = 1 << 20, cache: HeldCache | None = None):
        self.clock, self.cache = PausedClock(), cache or HeldCache()
        self.near = L1Cache(100, 30, clock=self.clock)
        self.near.watch_began()
        self.write_behind = WriteBehind(self.cache, None, self.near, max_bytes)  # type: ignore[arg-type]

    def store(
        self,
        question: str,
        tenant: str = "a",
        text: str = "Paris.",
        known: Known | None = None,
        may_store: MayStore | None = None,
    ) -> None:
        asked = cache_pb2.Question(tenant=tenant, model_class=question)
        request = cache_pb2.StoreRequest(question=asked, answer=cache_pb2.Answer(text=text))
        self.write_behind.store(question.encode(), request, known or self.near.removals.known(), may_store)

    def pending(self, question: str, tenant: str = "a") -> str | None:
        found = self.write_behind.pending(tenant, question.encode())
        return found and found.text

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.write_behind.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def settle(self) -> None:
        """Store what waits."""
        self.cache.go.set()
        async with self.running():
            await self.write_behind.settle(1)

    def stored(self) -> list[str]:
        return [request.question.model_class for request in self.cache.stores]


async def test_an_answer_is_found_while_it_waits_while_it_is_stored_and_then_in_the_near_cache():
    scene = Scene()
    scene.store("q")
    assert (scene.pending("q"), scene.pending("q", "b"), scene.pending("r")) == ("Paris.", None, None)
    async with scene.running():
        await until(lambda: scene.cache.stores, 1)
        assert scene.pending("q") == "Paris."
        scene.cache.go.set()
        await scene.write_behind.settle(1)
    assert scene.pending("q") is None
    assert scene.near.get("a", b"q").key == "key of q"


@pytest.mark.parametrize("clean", [True, False])
async def test_an_answer_that_is_to_be_looked_through_is_neither_found_nor_stored_before(clean: bool):
    scene, looked = Scene(), asyncio.Event()

    async def look() -> bool:
        await looked.wait()
        return clean

    scene.store("q", may_store=look)
    async with scene.running():
        scene.store("r")
        await until(lambda: scene.cache.stores, 1)
        assert (scene.pending("q"), scene.pending("r"), scene.stored()) == (None, "Paris.", ["r"])
        looked.set()
        await until(lambda: ("a", b"q") not in scene.write_behind._stored_now or scene.stored() == ["r", "q"], 1)
        assert scene.pending("q") == ("Paris." if clean else None)
        scene.cache.go.set()
        await scene.write_behind.settle(1)
    assert scene.stored() == (["r", "q"] if clean else ["r"])


async def test_a_store_carries_the_epoch_from_before_the_answer_began():
    scene = Scene()
    scene.near.removals.learn(7)
    begun = scene.near.removals.known()
    scene.near.removals.learn(9)
    scene.store("q", known=begun)
    await scene.settle()
    assert [request.epoch for request in scene.cache.stores] == [7]


async def test_an_answer_that_the_cache_skipped_is_counted_apart_and_not_kept_here_either():
    """The shared store is down, and the cache reports that: no fault of the answer, and no error that a retry would
    fix."""
    scene = Scene(cache=HeldCache(skips=True))
    dropped = {kind: write_behind._DROPPED.labels(kind)._value.get() for kind in ("skipped", "store")}
    scene.store("q")
    await scene.settle()
    assert (scene.stored(), scene.pending("q"), scene.near.get("a", b"q")) == (["q"], None, None)
    assert write_behind._DROPPED.labels("skipped")._value.get() == dropped["skipped"] + 1
    assert write_behind._DROPPED.labels("store")._value.get() == dropped["store"]


@pytest.mark.parametrize("before", [True, False])
async def test_an_answer_whose_tenant_is_removed_is_neither_given_nor_stored(before: bool):
    """Before it waits, or while it does."""
    scene = Scene()
    begun = scene.near.removals.known()
    scene.clock.advance(1)
    if before:
        scene.near.remove_tenant("a")
    scene.store("q", known=begun)
    scene.store("r", "b", known=begun)
    if not before:
        scene.near.remove_tenant("a")
    assert (scene.pending("q"), scene.pending("r", "b")) == (None, "Paris.")
    await scene.settle()
    assert scene.stored() == ["r"]
    scene.clock.advance(1)
    scene.store("q")  # begun since
    assert scene.pending("q") == "Paris."


async def test_a_pending_answer_with_a_removed_key_is_not_given_but_sent_to_the_cache():
    """A key also goes where it was evicted or has ended: then the new answer is welcome."""
    scene = Scene()
    scene.store("q", known=Known(scene.clock(), 1, "k"))
    scene.store("r", known=Known(scene.clock(), 1, "l"))
    scene.store("unknown", known=Known(scene.clock(), 1))
    scene.near.remove_key("k")
    assert (scene.pending("q"), scene.pending("r"), scene.pending("unknown")) == (None, "Paris.", None)
    await scene.settle()
    assert scene.stored() == ["q", "r", "unknown"]


async def test_nothing_that_waits_is_given_once_removals_may_have_been_missed():
    scene = Scene()
    scene.store("q")
    scene.near.watch_ended()
    assert scene.pending("q") is None
    scene.clock.advance(1)
    scene.near.watch_began()
    assert scene.pending("q") is None


async def test_pending_answers_are_bounded_in_bytes_and_the_largest_tenant_loses_its_oldest():
    scene = Scene(max_bytes=50_000)
    scene.store("b's", "b", "y" * 8_000)
    for number in range(20):
        scene.store(f"{number}", text="x" * 8_000)
    kept = [number for number in range(20) if scene.pending(f"{number}")]
    assert kept == [17, 18, 19]
    assert scene.pending("b's", "b")
    scene.store("huge", text="x" * 60_000)
    assert scene.pending("huge") is None
    await scene.settle()
    assert scene.stored() == ["b's", "17", "18", "19"]


async def test_a_newer_answer_replaces_the_pending_one_of_the_same_question():
    scene = Scene()
    scene.store("q", text="Lyon.")
    scene.store("q")
    assert scene.pending("q") == "Paris."
    await scene.settle()
    assert [request.answer.text for request in scene.cache.stores] == ["Paris."]


async def test_an_answer_that_the_cache_refuses_is_not_kept_in_memory():
    scene = Scene(cache=HeldCache(Unavailable("cache: ABORTED")))
    scene.store("q")
    await scene.settle()
    assert (scene.pending("q"), scene.near.get("a", b"q")) == (None, None)


class LostRouter:
    """Goes away while nothing is observed, the first `times` times. Its carriers read on, as gRPC's task does."""

    def __init__(self, times: int):
        self._left = times
        self.seen: list[str] = []
        self.carrying: list[asyncio.Task[None]] = []
        self.lost = asyncio.Event()

    async def observe(self, requests: AsyncIterator[router_pb2.ObserveRequest]) -> None:
        gone, self._left = self._left > 0, self._left - 1

        async def carry() -> None:
            async for request in requests:
                if gone:
                    return  # it cannot be written
                self.seen += [seen.model for seen in request.observations]

        self.carrying.append(asyncio.create_task(carry()))
        await asyncio.sleep(0.01)
        if gone:
            raise Unavailable("router: gone")
        self.lost.set()
        await asyncio.Event().wait()


async def test_observations_after_the_loss_of_a_router_reach_it_when_it_returns() -> None:
    router = LostRouter(times=2)
    behind = WriteBehind(None, router, L1Cache(100, 30))  # type: ignore[arg-type]
    running = asyncio.create_task(behind.run())
    await router.lost.wait()
    for model in "abc":
        behind.observe(router_pb2.Observation(model=model))
        await asyncio.sleep(1)
    assert router.seen == ["a", "b", "c"]
    running.cancel()
    await asyncio.wait([running, *router.carrying])
