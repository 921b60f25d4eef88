"""Routers share the observations of their gateways: real routers on a real Redis that comes and goes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hedgerow.channel import open_channel
from hedgerow.router.v1 import router_pb2 as pb
from hedgerow.router.v1 import router_pb2_grpc
from services.router.config import ModelSettings
from services.router.shared import KEY, SharedObservations
from services.router.table import Table
from services.runtime.security.secrets import Url
from services.runtime.shared_state import connected
from tests.conftest import Start
from tests.forked import ServiceProcess
from tests.redis import PATIENT_MS, PATIENT_S, RedisProcess
from tests.waiting import until

_WITHIN_S = 20.0
_MODELS = [{"name": name, "tier": "fast", "context_tokens": 1_000} for name in ("small", "large")]


async def start_router(start: Start, redis: RedisProcess, name: str, **settings: str) -> ServiceProcess:
    shared = {"redis_url": redis.url, "redis_timeout_ms": str(PATIENT_MS)}
    return await start("router", name, models=json.dumps(_MODELS), **shared, **settings)


def seen(model: str, *totals_ms: float, failed: bool = False) -> pb.ObserveRequest:
    outcome = pb.OBSERVED_OUTCOME_FAILED if failed else pb.OBSERVED_OUTCOME_OK
    return pb.ObserveRequest(
        observations=[pb.Observation(model=model, ttft_ms=ms / 2, total_ms=ms, outcome=outcome) for ms in totals_ms]
    )


@asynccontextmanager
async def calling(router: ServiceProcess) -> AsyncIterator[Any]:
    async with open_channel(router.spec.address) as channel:
        yield router_pb2_grpc.RouterServiceStub(channel)


async def tell(router: ServiceProcess, *requests: pb.ObserveRequest) -> None:
    async with calling(router) as stub:
        reply = await stub.Observe(iter(requests), timeout=20, wait_for_ready=True)
        assert reply.taken == sum(len(request.observations) for request in requests)


async def table(router: ServiceProcess) -> dict[str, pb.Model]:
    async with calling(router) as stub:
        listed = await stub.ListModels(pb.ListModelsRequest(), timeout=20, wait_for_ready=True)
    return {model.name: model for model in listed.models}


async def until_samples(router: ServiceProcess, model: str, count: int) -> dict[str, pb.Model]:
    return await until(lambda: table(router), _WITHIN_S, holds=lambda models: models[model].total.samples == count)


async def test_two_routers_tables_agree_and_a_new_one_starts_with_what_they_know(start: Start, redis: RedisProcess):
    one, other = [await start_router(start, redis, name) for name in ("one", "other")]
    await asyncio.gather(
        tell(one, seen("small", *range(100, 200)), seen("small", 50, failed=True)),
        tell(other, seen("small", *range(1_000, 1_050)), seen("large", 900)),
    )
    tables = [await until_samples(router, "small", 150) for router in (one, other)]
    tables = [await until_samples(router, "large", 1) for router in (one, other)]
    assert tables[0] == tables[1]
    assert tables[0]["small"].failure_rate == pytest.approx(1 / 151)
    late = await start_router(start, redis, "late")
    assert await table(late) == tables[0]  # from its first moment
    assert [await router.stop() for router in (one, other, late)] == [0, 0, 0]


async def test_watchers_get_what_other_routers_observed(start: Start, redis: RedisProcess):
    one, other = await start_router(start, redis, "one"), await start_router(start, redis, "other")
    async with calling(other) as stub, asyncio.timeout(_WITHIN_S):
        watch = stub.WatchTable(pb.WatchTableRequest())
        while not (message := await watch.read()).models:
            pass
        await tell(one, seen("small", 500))
        while not message.models[0].total.samples:
            message = await watch.read()
        watch.cancel()


async def test_a_router_without_redis_goes_on_with_its_own_and_reads_the_others_when_it_is_back(
    start: Start, redis: RedisProcess
):
    one, other = await start_router(start, redis, "one"), await start_router(start, redis, "other")
    await redis.kill()
    await tell(one, seen("small", 500))
    assert (await table(one))["small"].total.samples == 1
    assert (await table(other))["small"].total.samples == 0
    await redis.start()
    async with asyncio.timeout(_WITHIN_S):
        while (await table(other))["small"].total.samples < 2:  # later ones only: those of the outage are lost
            await tell(one, seen("small", 600))
            await asyncio.sleep(0.05)


async def test_a_router_starts_without_redis(start: Start, redis: RedisProcess):
    await redis.kill()
    router = await start_router(start, redis, "alone")
    await tell(router, seen("small", 500))
    assert (await table(router))["small"].total.samples == 1


# One router's part, in this process


class Heard:
    """A table, and how old what it was given was."""

    def __init__(self, window_s: float):
        self.table = Table([ModelSettings(**model) for model in _MODELS], window_s)
        self.ages_s: list[float] = []
        self.totals_ms: list[float] = []

    def take(self, request: pb.ObserveRequest, age_s: float) -> None:
        self.ages_s.append(age_s)
        self.totals_ms += [observation.total_ms for observation in request.observations]


@asynccontextmanager
async def listening(redis: RedisProcess, window_s: float, heard: Heard) -> AsyncIterator[SharedObservations]:
    async with connected(Url(redis.url), PATIENT_S) as state:
        shared = SharedObservations(state, window_s, heard.take)
        running = asyncio.create_task(shared.run())
        try:
            await until(lambda: state.up)
            yield shared
        finally:
            running.cancel()
            await asyncio.wait({running})


async def _add(redis: RedisProcess, ages_s: Sequence[float], **fields: bytes) -> None:
    """Entries of that age, the oldest first, as if a router had written them then."""
    async with redis.client() as client:
        seconds, microseconds = await client.time()
        for age_s in sorted(ages_s, reverse=True):
            number = int((seconds + microseconds / 1e6 - age_s) * 1000)
            entry = {b"from": b"another", b"batch": seen("small", age_s).SerializeToString()}
            await client.xadd(KEY, entry | {name.encode(): value for name, value in fields.items()}, id=number)


async def test_observations_read_back_keep_their_age_within_the_window(redis: RedisProcess):
    await _add(redis, [900, 250, 100, 1])
    heard = Heard(300)
    async with connected(Url(redis.url), PATIENT_S) as state:
        await SharedObservations(state, 300, heard.take).catch_up()
    assert heard.totals_ms == [250, 100, 1]
    assert [round(age_s, -1) for age_s in heard.ages_s] == [250, 100, 0]


async def test_a_redis_whose_clock_goes_back_has_its_observations_read_once(redis: RedisProcess):
    await _add(redis, [-3_600, -3_601])  # as after a failover to a machine whose clock is an hour behind
    heard = Heard(300)
    async with connected(Url(redis.url), PATIENT_S) as state, redis.client() as client:
        shared = SharedObservations(state, 300, heard.take)
        for _ in range(2):
            await shared.catch_up()
        assert heard.totals_ms == [-3_600, -3_601]
        await client.xadd(KEY, {b"from": b"another", b"batch": seen("small", 5).SerializeToString()})
        await shared.catch_up()
    assert heard.totals_ms == [-3_600, -3_601, 5]


async def test_an_entry_that_cannot_be_read_is_passed_over(redis: RedisProcess):
    await _add(redis, [5], batch=b"\xff\xff")
    await _add(redis, [3])
    heard = Heard(300)
    async with listening(redis, 300, heard):
        await until(lambda: heard.totals_ms)
    assert heard.totals_ms == [3]


async def test_a_router_skips_its_own_messages_and_keeps_the_stream_as_long_as_the_window(redis: RedisProcess):
    await _add(redis, range(600, 900))
    mine, others = Heard(300), Heard(300)
    async with listening(redis, 300, mine) as one, listening(redis, 300, others):
        for total_ms in range(5):
            one.publish(seen("small", total_ms))
        await until(lambda: len(others.totals_ms) >= 5)
    assert (mine.totals_ms, others.totals_ms) == ([], [0, 1, 2, 3, 4])
    async with redis.client() as client:
        entries = await client.xrange(KEY)
        assert len(entries) < 150  # of 300 from before it; those that share a node with later ones may stay a while
        assert sum(entry[b"from"] != b"another" for _, entry in entries) == 1  # sent together
        assert 0 < await client.pttl(KEY) <= 301_000
