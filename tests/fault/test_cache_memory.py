"""The largest and the smallest of everything a cache keeps, until all its memories are full."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from hedgerow.cache.v1 import cache_pb2, cache_pb2_grpc
from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from services.runtime.limits import QUESTION_BYTES
from tests.fault.memory import container_mib, peak_mib
from tests.fault.mesh import Processes
from tests.fault.report import Report
from tests.forked import ServiceProcess
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]
_MIB = 1024 * 1024
_LARGEST, _LARGEST_ANSWER = QUESTION_BYTES - 1024, 255 * 1024  # in bytes, of a question and of an answer
_AT_ONCE = 64
_SMALL: dict[str, object] = {
    "max_entries": 400,
    "max_bytes": 16 * _MIB,
    "max_waiting_bytes": 8 * _MIB,
    "embedding_cache_bytes": 256 * 1024,
}
_SMALL_GROWTH_MIB = 256  # a request may take five times its size in memory before it can be refused


def _question(text: str, tenant: str, context: str = "") -> cache_pb2.Question:
    messages = [chat_pb2.Message(role=chat_pb2.ROLE_SYSTEM, content=context)] if context else []
    messages.append(chat_pb2.Message(role=chat_pb2.ROLE_USER, content=text))
    return cache_pb2.Question(tenant=tenant, model_class="fast", messages=messages)


def _store(question: cache_pb2.Question, answer: str, ttl_ms: int | None = None) -> cache_pb2.StoreRequest:
    kept = cache_pb2.Answer(text=answer, model="demo", finish_reason=chat_pb2.FINISH_REASON_STOP)
    return cache_pb2.StoreRequest(question=question, answer=kept, ttl_ms=ttl_ms)


def _large(number: int, tenant: str = "flood") -> cache_pb2.StoreRequest:
    """A large entry, of two kinds: one has a character for which Python uses four bytes for each character."""
    text = f"{number} {'🍎' if number % 2 else ''}".ljust(_LARGEST - 8, "q")
    return _store(_question(text, tenant), "a" * _LARGEST_ANSWER)


def _small(number: int) -> cache_pb2.StoreRequest:
    """Each alone in its partition."""
    return _store(_question(f"what is {number}", f"small-{number % 10}", f"context {number}"), "x")


@pytest_asyncio.fixture(loop_scope="session")
async def cache(starter: Processes, tmp_path: Path, full_size: bool) -> AsyncIterator[tuple[ServiceProcess, Any]]:
    """A cache on a file: with its default budgets, or with small ones."""
    times = {"stale_ms": 200, "sweep_interval_ms": 50, "embedding_cache_ttl_ms": 500}
    settings = times if full_size else times | _SMALL
    process = await starter.start("cache", database=str(tmp_path / "answers.sqlite"), **settings)
    async with open_channel(process.spec.address) as channel:
        yield process, cache_pb2_grpc.CacheServiceStub(channel)


async def test_every_memory_of_the_cache_is_bounded_in_bytes(
    cache: tuple[ServiceProcess, Any], report: Report, full_size: bool
) -> None:
    process, stub = cache
    before = peak_mib(process)
    large, small = (1_500, 20_000) if full_size else (60, 600)
    limit_mib = container_mib("cache") if full_size else before + _SMALL_GROWTH_MIB
    with report.case(29, "the largest and the smallest questions and answers, until the cache is full") as row:
        working_set = [_store(_question(f"what is the answer {number}", "b"), "b" * 1_000) for number in range(20)]
        row.tally(ok=await _each(stub.Store, working_set))
        row.tally(ok=await _each(stub.Store, map(_large, range(large)), at_once=2))
        row.tally(ok=await _each(stub.Lookup, (_lookup(_large(number)) for number in range(large, 2 * large)), 2))
        row.tally(ok=await _each(stub.Store, map(_small, range(small))))
        stats = await stub.GetStats(cache_pb2.GetStatsRequest())
        assert stats.bytes <= (256 * _MIB if full_size else 16 * _MIB)
        assert stats.evictions > 0
        # Of the same size, and so worth as much for each byte: the oldest made room.
        for kept, verdict in ((_large(large - 2), cache_pb2.VERDICT_EXACT), (_large(0), cache_pb2.VERDICT_MISS)):
            assert (await stub.Lookup(_lookup(kept))).verdict == verdict
        for kept in working_set:  # another tenant's, stored before all that
            assert (await stub.Lookup(_lookup(kept))).verdict == cache_pb2.VERDICT_EXACT
        row.measured("resident memory", peak_mib(process), limit_mib, " MiB", slack=1)


async def test_requests_that_wait_are_bounded_in_bytes(
    cache: tuple[ServiceProcess, Any], report: Report, full_size: bool
) -> None:
    process, stub = cache
    before, at_once = peak_mib(process), 200 if full_size else 40
    limit_mib = container_mib("cache") if full_size else before + _SMALL_GROWTH_MIB
    with report.case(29, f"one tenant's largest stores, {at_once} at once, again and again; another asks") as row:
        async with _flooded(process, at_once) as refused:
            for number in range(20):
                assert (await stub.Lookup(_lookup(_small(number)), timeout=10)).verdict == cache_pb2.VERDICT_MISS
                row.tally(ok=1)
        row.tally(failed=len(refused))
        assert set(refused) == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        row.measured("resident memory", peak_mib(process), limit_mib, " MiB", slack=1)


async def test_expired_entries_are_removed_automatically(cache: tuple[ServiceProcess, Any], report: Report) -> None:
    _, stub = cache
    with report.case(29, "answers and embeddings that have expired, without a request") as row:
        brief = [_store(_question(f"what is {number}", "a"), "x" * 1_000, ttl_ms=100) for number in range(100)]
        row.tally(ok=await _each(stub.Store, brief))
        await until(lambda: _empty(stub))
        computed = (await stub.GetStats(cache_pb2.GetStatsRequest())).embedding_misses
        again = _store(_question("what is 0", "a"), "x")

        async def forgotten() -> bool:
            await asyncio.sleep(0.6)  # longer than an embedding is remembered without being asked for
            await stub.Store(again)
            return bool((await stub.GetStats(cache_pb2.GetStatsRequest())).embedding_misses > computed)

        await until(forgotten)


def _lookup(stored: cache_pb2.StoreRequest) -> cache_pb2.LookupRequest:
    return cache_pb2.LookupRequest(question=stored.question)


async def _each(call: Any, requests: Iterable[Any], at_once: int = _AT_ONCE) -> int:
    """Make each call; few at a time, so that none is refused. Returns how many there were."""
    room, count = asyncio.Semaphore(at_once), 0

    async def make(request: Any) -> None:
        try:
            await call(request, timeout=60)
        finally:
            room.release()

    async with asyncio.TaskGroup() as tasks:
        for request in requests:
            await room.acquire()
            tasks.create_task(make(request))
            count += 1
    return count


@asynccontextmanager
async def _flooded(process: ServiceProcess, at_once: int) -> AsyncIterator[list[grpc.StatusCode]]:
    """While one tenant stores the largest there is, over and over. Yields how those ended that were refused.

    Over several connections: on one, a server that refuses a hundred at once refuses streams, too.
    """
    refused: list[grpc.StatusCode] = []

    async def flood(stub: Any, request: cache_pb2.StoreRequest) -> None:
        while True:
            code = await stub.Store(request, timeout=60).code()
            if code is not grpc.StatusCode.OK:
                refused.append(code)

    async with AsyncExitStack() as stack:
        for numbers in (range(first, at_once, 5) for first in range(5)):
            stub = cache_pb2_grpc.CacheServiceStub(await stack.enter_async_context(open_channel(process.spec.address)))
            for number in numbers:
                task = asyncio.create_task(flood(stub, _large(number)))
                stack.callback(task.cancel)
        yield refused


async def _empty(stub: Any) -> bool:
    return not (await stub.GetStats(cache_pb2.GetStatsRequest())).entries
