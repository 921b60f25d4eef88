"""Responses that several gateways store on one Redis: what Redis has of them, and what a gateway does without it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from services.gateway.admission.quota import Allowance
from services.gateway.assembly import response_store, sharing
from services.gateway.config import GatewaySettings
from services.gateway.http.stored_responses import redis_store
from services.gateway.http.stored_responses.redis_store import RedisResponses, seal, unseal
from services.gateway.http.stored_responses.store import Owner, StoreUnavailable
from services.gateway.policies.hedge import HedgeBudget
from services.gateway.settings.serving import StoredResponseSettings
from services.runtime.security.secrets import Url
from services.runtime.shared_state import SharedState, connected
from tests.conftest import Start
from tests.integration.http_gateway import HttpGateway, start_http_gateway
from tests.integration.scripted_llm import ScriptedLlm
from tests.redis import PATIENT_MS, PATIENT_S, RedisProcess
from tests.waiting import until

ACME, UMBRA = Owner("acme"), Owner("umbra")
KB = 1_024


@pytest.fixture
async def state(redis: RedisProcess) -> AsyncIterator[SharedState]:
    async with connected(Url(redis.url), PATIENT_S) as connection:
        await until(lambda: connection.up)
        yield connection


async def _keys(redis: RedisProcess) -> list[str]:
    async with redis.client() as client:
        return sorted(key.decode() for key in await client.keys("*"))


async def test_a_response_is_found_by_its_owner_alone(state: SharedState) -> None:
    store, other = RedisResponses(state, 60_000, 100 * KB), RedisResponses(state, 60_000, 100 * KB)
    assert await store.put(ACME, "resp_1", b"data")
    assert await other.get(ACME, "resp_1") == b"data"
    for stranger in (UMBRA, Owner("acme", ("anna",))):
        assert await store.get(stranger, "resp_1") is None
        assert not await store.delete(stranger, "resp_1")
    assert await other.delete(ACME, "resp_1")
    assert await store.get(ACME, "resp_1") is None
    assert not await store.delete(ACME, "resp_1")


async def test_more_calls_at_once_than_redis_has_connections_for_do_not_take_it_for_lost(state: SharedState) -> None:
    store, losses = RedisResponses(state, 60_000, 100 * KB), list[None]()
    state.on_loss(lambda: losses.append(None))
    found = await asyncio.gather(*(store.size(ACME, f"resp_{number}") for number in range(300)))
    assert (set(found), losses) == ({None}, [])


async def test_a_call_does_not_wait_behind_all_calls_of_another_tenant(state: SharedState) -> None:
    store, done = RedisResponses(state, 60_000, 100 * KB), list[Owner]()

    async def size(owner: Owner) -> None:
        await store.size(owner, "resp_1")
        done.append(owner)

    await asyncio.gather(*(size(ACME) for _ in range(300)), size(UMBRA))
    assert done.index(UMBRA) < 100


async def test_a_response_that_takes_too_long_fails_alone(
    redis: RedisProcess, state: SharedState, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = RedisResponses(state, 60_000, 100 * KB)
    await store.put(ACME, "resp_1", b"data")
    monkeypatch.setattr(redis_store, "_TRANSFER_S", -PATIENT_S)  # beside the time that Redis has
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="stored responses: Redis took more than"):
            await store.get(ACME, "resp_1")
    monkeypatch.undo()
    assert state.up
    assert await store.get(ACME, "resp_1") == b"data"
    assert len(caplog.records) == 1


async def test_redis_has_neither_ids_nor_texts_nor_anything_for_ever(redis: RedisProcess, state: SharedState) -> None:
    await RedisResponses(state, 60_000, 100 * KB).put(Owner("acme", ("anna",)), "resp_secret", b"Capital of Japan?" * 9)
    async with redis.client() as client:
        for key in await client.keys("*"):
            kind = await client.type(key)
            read = {b"string": client.get, b"hash": client.hgetall}.get(kind)
            stored = f"{key} {await read(key) if read else await client.zrange(key, 0, -1)}"
            assert not any(word in stored for word in ("secret", "Capital", "anna")), stored
            assert 0 < await client.pttl(key) <= 120_000


async def test_a_moved_or_changed_response_does_not_open() -> None:
    sealed = seal("resp_1", "name", b"data")
    assert unseal("resp_1", "name", sealed) == b"data"
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for other in (("resp_2", "name", sealed), ("resp_1", "other", sealed), ("resp_1", "name", changed)):
        assert unseal(*other) is None
    assert unseal("resp_1", "name", b"") is None


async def test_a_full_tenant_loses_its_least_recently_used_response(redis: RedisProcess, state: SharedState) -> None:
    store = RedisResponses(state, 60_000, 35 * KB)
    await store.put(UMBRA, "0", b"x" * 10 * KB)
    for each in "123":
        await store.put(ACME, each, b"x" * 10 * KB)
    await store.get(ACME, "1")
    await store.put(ACME, "4", b"x" * 10 * KB)
    assert [await store.get(ACME, each) is not None for each in "1234"] == [True, False, True, True]
    assert await store.get(UMBRA, "0")
    await store.put(ACME, "4", b"y")
    assert await store.put(ACME, "5", b"x" * 10 * KB), "a replaced response no longer counts"
    assert [await store.get(ACME, each) is not None for each in "1345"] == [True] * 4
    assert not await store.put(ACME, "6", b"x" * 35 * KB)
    assert [await store.get(ACME, each) is not None for each in "13456"] == [True] * 4 + [False]


async def test_a_redis_whose_clock_goes_back_loses_the_least_recently_used_response(
    redis: RedisProcess, state: SharedState
) -> None:
    store = RedisResponses(state, 60_000, 35 * KB)
    for each in "123":
        await store.put(ACME, each, b"x" * 10 * KB)
    async with redis.client() as client:  # as after a failover to a machine whose clock is an hour behind
        for used in await client.zrange("hedgerow:responses:{acme}:used", 0, -1):
            await client.zincrby("hedgerow:responses:{acme}:used", 3_600e6, used)
    assert await store.get(ACME, "1")
    assert await store.put(ACME, "4", b"x" * 10 * KB)
    assert [await store.get(ACME, each) is not None for each in "1234"] == [True, False, True, True]


async def test_an_expired_response_makes_room_and_leaves_nothing(redis: RedisProcess, state: SharedState) -> None:
    store = RedisResponses(state, 50, 35 * KB)
    for each in "123":
        await store.put(ACME, each, b"x" * 10 * KB)
    await until(lambda: store.get(ACME, "3"), holds=lambda found: found is None)
    await until(lambda: _keys(redis), holds=lambda keys: keys == [])
    lasting = RedisResponses(state, 60_000, 35 * KB)
    await lasting.put(ACME, "4", b"x")
    await store.put(ACME, "5", b"x")
    async with redis.client() as client:
        sizes = await client.hgetall("hedgerow:responses:{acme}:bytes")
    assert int(sizes.pop(b"")) == sum(map(int, sizes.values()))


async def test_a_response_with_little_time_leaves_the_index_its_own(redis: RedisProcess, state: SharedState) -> None:
    await RedisResponses(state, 60_000, 35 * KB).put(ACME, "1", b"x")
    await RedisResponses(state, 1, 35 * KB).put(ACME, "2", b"x")
    async with redis.client() as client:
        for index in ("used", "ends", "bytes"):
            assert await client.pttl(f"hedgerow:responses:{{acme}}:{index}") > 60_000


async def test_a_use_renews_no_response_that_expires(redis: RedisProcess, state: SharedState) -> None:
    short, lasting = RedisResponses(state, 200, 35 * KB), RedisResponses(state, 60_000, 35 * KB)
    await lasting.put(ACME, "1", b"x" * 10 * KB)
    await short.put(ACME, "2", b"x" * 20 * KB)
    await until(lambda: short.get(ACME, "2"), holds=lambda found: found is None)
    await lasting.put(ACME, "3", b"x" * 20 * KB)
    assert [await lasting.get(ACME, each) is not None for each in "123"] == [True, False, True]


async def test_one_call_evicts_a_limited_number_of_responses(redis: RedisProcess, state: SharedState) -> None:
    short, lasting = RedisResponses(state, 100, 500 * KB), RedisResponses(state, 60_000, 500 * KB)

    async def listed() -> int:
        async with redis.client() as client:
            return int(await client.zcard("hedgerow:responses:{acme}:used"))

    await lasting.put(ACME, "lasting", b"x")
    for each in range(450):
        await short.put(ACME, f"{each}", b"x")
    await until(lambda: short.get(ACME, "449"), holds=lambda found: found is None)
    left = await listed()
    while (before := left) > 1:
        await lasting.put(ACME, "lasting", b"x")
        left = await listed()
        assert left >= before - 200
    for each in range(450):
        await lasting.put(ACME, f"{each}", b"x" * KB)
    large = b"x" * 490 * KB
    assert await lasting.put(ACME, "large", large)
    assert await lasting.get(ACME, "large") == large
    async with redis.client() as client:
        assert int(await client.hget("hedgerow:responses:{acme}:bytes", "")) <= 500 * KB


async def test_a_redis_without_room_takes_no_response_and_gives_those_it_has(
    redis: RedisProcess, state: SharedState
) -> None:
    store, losses = RedisResponses(state, 60_000, 100_000 * KB), list[None]()
    await store.put(ACME, "1", b"x" * KB)
    await store.put(UMBRA, "1", b"y")
    state.on_loss(lambda: losses.append(None))
    async with redis.client() as client:
        await client.config_set("maxmemory", 1)
        for each in "123":
            with pytest.raises(StoreUnavailable, match="Redis refuses changes"):
                await store.put(ACME, each, b"x" * 100 * KB)
        assert [await client.strlen(key) < 2 * KB for key in await client.keys(f"*:{{acme}}:{'?' * 64}")] == [True]
        assert await store.get(ACME, "1") == b"x" * KB
        assert await store.delete(UMBRA, "1")
        await client.config_set("maxmemory", 0)
    assert await store.put(ACME, "2", b"x" * 100 * KB)
    assert losses == []


async def test_quotas_have_a_connection_of_their_own(redis: RedisProcess) -> None:
    settings = GatewaySettings(
        llm_addresses={"m": ["127.0.0.1:1"]},
        redis_url=Url(redis.url),
        redis_timeout_ms=PATIENT_MS,
        responses=StoredResponseSettings(ttl_ms=60_000),
    )
    async with sharing(settings, HedgeBudget(0.05, 10)) as shared:
        assert shared
        assert shared.responses
        store = response_store(settings, shared)
        assert store
        assert await store.put(ACME, "resp_1", b"x")
        shared.responses.lose("it answers too late")
        with pytest.raises(StoreUnavailable):
            await store.get(ACME, "resp_1")
        reservation = await shared.quotas.reserve("acme", Allowance(concurrency=1), 1, 5)
        assert not reservation.local_reason, "Redis still decides on quotas"


@pytest.mark.parametrize("lost", ["used", "ends", "bytes"])
async def test_an_index_that_redis_has_evicted_begins_again(redis: RedisProcess, state: SharedState, lost: str) -> None:
    store = RedisResponses(state, 60_000, 35 * KB)
    await store.put(ACME, "1", b"x" * 10 * KB)
    async with redis.client() as client:
        await client.delete(f"hedgerow:responses:{{acme}}:{lost}")
    for each in "2345":
        assert await store.put(ACME, each, b"x" * 10 * KB)
    assert [await store.get(ACME, each) is not None for each in "12345"] == [True, False, True, True, True]


async def test_without_redis_stored_responses_are_unavailable(redis: RedisProcess, state: SharedState) -> None:
    store = RedisResponses(state, 60_000, 100 * KB)
    await store.put(ACME, "1", b"x")
    await redis.kill()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"^stored responses: Redis"):
            await store.get(ACME, "1")


def _client(gateway: HttpGateway) -> AsyncOpenAI:
    return AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key="any", max_retries=0, timeout=20, _strict_response_validation=True
    )


async def test_any_gateway_and_worker_goes_on_with_a_response_of_another(
    start: Start, llm: ScriptedLlm, redis: RedisProcess
) -> None:
    settings = {"responses__ttl_ms": "60000", "redis_url": redis.url, "redis_timeout_ms": str(PATIENT_MS)}
    first, second = [await start_http_gateway(start, llm, **settings) for _ in range(2)]
    async with _client(first) as one, _client(second) as other:
        answer: Any = await one.responses.create(model="m", input="Capital of France?")
        assert (answer.output_text, answer.store) == ("Paris.", True)
        stream = await other.responses.create(
            model="m", input="And its river?", previous_response_id=answer.id, stream=True
        )
        last = [event async for event in stream][-1]
        assert last.type == "response.completed"
        said = [each.content for each in llm.requests[-1].messages]
        assert said == ["Capital of France?", "Paris.", "And its river?"]
        assert (await one.responses.retrieve(last.response.id)).previous_response_id == answer.id
        await other.responses.delete(answer.id)
        with pytest.raises(openai.NotFoundError):
            await one.responses.retrieve(answer.id)


async def test_an_answer_without_redis_is_whole_and_says_that_it_is_not_stored(
    start: Start, llm: ScriptedLlm, redis: RedisProcess
) -> None:
    gateway = await start_http_gateway(start, llm, responses__ttl_ms="60000", redis_url=redis.url)
    async with _client(gateway) as client:
        first = await client.responses.create(model="m", input="Capital of France?")
        await redis.kill()
        for streamed in (False, True):
            answer: Any = await client.responses.create(model="m", input="Capital of France?", stream=streamed)
            if streamed:
                answer = [event async for event in answer][-1].response
            assert (answer.output_text, answer.store) == ("Paris.", False)
            assert "response:unstored" in answer.model_extra["hedgerow"]["degraded"]
        with pytest.raises(openai.InternalServerError, match="stored responses: Redis") as away:
            await client.responses.create(model="m", input="?", previous_response_id=first.id)
        assert away.value.status_code == 503
