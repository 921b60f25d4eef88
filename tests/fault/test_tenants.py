"""Authentication of tenants, and isolation between them."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc_reflection.v1alpha import reflection_pb2

from hedgerow.channel import done_sending, open_channel, send
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from launcher.processes import check_health, free_port
from tests.fault.apart import apart
from tests.fault.asking import MODEL, asking, question, times_s
from tests.fault.faulty_llm import Behaviour, FaultyLlm
from tests.fault.mesh import PATIENT_LOOKUPS, Processes, stats
from tests.fault.report import Report
from tests.keys import tenants
from tests.waiting import until

pytestmark = [pytest.mark.measures, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(60)]
_HITS = (pb.CACHE_VERDICT_EXACT, pb.CACHE_VERDICT_SEMANTIC)
_ASKED = {
    "What is the capital of France?": "Tell me the capital of France.",
    "How do I boil an egg?": "How can I boil an egg?",
    "Why is the sky blue?": "Why does the sky look blue?",
}
_FORGED = (("tenant", "a"), ("x-tenant", "a"), ("x-tenant-id", "a"), ("hedgerow-tenant", "a"), ("baggage", "tenant=a"))


def write(path: Path, tenants: Mapping[str, Any]) -> None:
    """At once, as an operator's tool would; JSON is YAML."""
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(tenants))
    os.replace(unfinished, path)


async def test_every_method_asks_for_a_key_that_is_good_now(
    starter: Processes, llm: FaultyLlm, report: Report, tmp_path: Path
):
    write(file := tmp_path / "tenants.yaml", tenants("a", "b"))
    gateway = await starter.gateway(llm.address, tenants_file=str(file))
    address = gateway.spec.address
    with report.case(24, "no key, a bad key, a malformed one, on every method") as row:
        for headers in ((), _bearer("nobody"), _bearer(""), (("authorization", "key-a"),), _FORGED):
            codes = await _codes(address, headers)
            row.tally(failed=len(codes))
            assert set(codes.values()) == {grpc.StatusCode.UNAUTHENTICATED}, (headers, codes)
        assert llm.attempts == []
        assert await check_health(address, 5) == "SERVING"  # probes carry no credentials
    with report.case(24, "a key that is revoked while the gateway runs") as row:
        good = await _codes(address, _bearer("key-a"))
        row.tally(ok=len(good))
        assert set(good.values()) == {grpc.StatusCode.OK}
        write(file, tenants("b"))
        revoked = time.monotonic()
        async with asking(address, "key-a") as caller:
            row.count(*await caller.until(lambda o: o.code is grpc.StatusCode.UNAUTHENTICATED, within_s=20))
        row.detected(time.monotonic() - revoked, 1.0)
        codes = await _codes(address, _bearer("key-a"))
        row.tally(failed=len(codes))
        assert set(codes.values()) == {grpc.StatusCode.UNAUTHENTICATED}
        assert set((await _codes(address, _bearer("key-b"))).values()) == {grpc.StatusCode.OK}


def _bearer(key: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {key}"),)


async def _codes(address: str, headers: tuple[tuple[str, str], ...]) -> dict[str, grpc.StatusCode]:
    """How each method of the gateway answers, health apart."""
    listing = reflection_pb2.ServerReflectionRequest(list_services="")
    request = question()
    batch = pb.GenerateBatchRequest(requests=[request])
    async with open_channel(address) as channel:
        service = "/hedgerow.gateway.v1.GatewayService"
        reflect = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        calls: dict[str, Any] = {
            "Generate": channel.unary_stream(f"{service}/Generate")(request.SerializeToString(), metadata=headers),
            "GenerateBatch": channel.unary_stream(f"{service}/GenerateBatch")(
                batch.SerializeToString(), metadata=headers
            ),
            "reflection": reflect(metadata=headers),
        }
        await send(calls["reflection"], listing)  # gRPC's own iterator turns a refusal on the way into INTERNAL
        await done_sending(calls["reflection"])
        return {name: await _code(call) for name, call in calls.items()}


async def _code(call: Any) -> grpc.StatusCode:
    try:
        async with asyncio.timeout(10):
            while await call.read() is not grpc.aio.EOF:
                pass
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_a_tenants_answers_are_its_own(starter: Processes, llm: FaultyLlm, report: Report):
    cache = await starter.start("cache")
    known = {"cache_address": cache.spec.address, "stages": PATIENT_LOOKUPS}
    gateway = await starter.gateway(llm.address, tenants=tenants("a", "b"), **known)
    address = gateway.spec.address
    near = pb.CachePolicy(min_similarity=0.7)
    async with asking(address, "key-a") as a, asking(address, "key-b") as b:
        with report.case(25, "B asks A's prompts and paraphrases") as row:
            for asked, paraphrase in _ASKED.items():
                await until(partial(a.ask, asked), holds=lambda outcome: outcome.final.cache.key)
                hit = await a.ask(paraphrase, cache=near)
                assert hit.final.cache.verdict == pb.CACHE_VERDICT_SEMANTIC, hit  # there is something to be had
            for asked, paraphrase in _ASKED.items():
                outcomes = [await b.ask(paraphrase, cache=near), await b.ask(asked)]
                row.count(*outcomes)
                assert all(outcome.ok for outcome in outcomes)
                assert outcomes[0].final.cache.verdict not in _HITS
                assert outcomes[1].final.cache.verdict != pb.CACHE_VERDICT_EXACT
        with report.case(24, "tenant metadata forged by a caller with a key of its own") as row:
            llm.reset()
            b.metadata = (*b.metadata, *_FORGED)
            outcomes = [await b.ask(paraphrase, cache=near, max_tokens=3) for paraphrase in _ASKED.values()]
            row.count(*outcomes)
            assert not any(outcome.final.cache.verdict in _HITS for outcome in outcomes)
            assert len(llm.attempts) == len(outcomes)
        with report.case(25, "A and B ask the same at the same time") as row:
            llm.reset()
            llm.behaviour = Behaviour(first_ms=50)
            outcomes = await asyncio.gather(*(caller.ask("At once?") for caller in (a, b) for _ in range(5)))
            row.count(*outcomes)
            assert all(outcome.ok for outcome in outcomes)
            assert len(llm.attempts) >= 2  # each tenant's own


async def test_degraded_and_partial_answers_are_never_stored(starter: Processes, llm: FaultyLlm, report: Report):
    cache = await starter.start("cache")
    gateway = await starter.gateway(llm.address, cache_address=cache.spec.address, stages=PATIENT_LOOKUPS)
    async with asking(gateway.spec.address) as caller:
        with report.case(25, "answers cut off by the budget, the engine or the caller") as row:
            llm.behaviour = Behaviour(tokens=50, each_ms=200)
            late = await caller.ask("Late?", budget_ms=2_000)
            gone = caller.start("Gone?")
            await gone.first_text()
            gone.cancel()
            llm.behaviour = Behaviour(tokens=50, break_after=2)
            broken = await caller.ask("Broken?", single_attempt=True)
            row.count(late, broken)
            row.tally(failed=1)
            assert late.final.finish_reason == chat_pb2.FINISH_REASON_BUDGET
            assert broken.final.finish_reason == chat_pb2.FINISH_REASON_INTERRUPTED
            await asyncio.sleep(0.2)  # more than a store takes
            assert (await stats(cache.spec.address)).stores == 0
            llm.behaviour = Behaviour()
            again = [await caller.ask(text) for text in ("Late?", "Gone?", "Broken?")]
            row.count(*again)
            assert {outcome.final.cache.verdict for outcome in again} == {pb.CACHE_VERDICT_MISS}


@pytest.mark.parametrize("way", ["gRPC", "HTTP"])
async def test_one_tenants_flood_does_not_slow_another(starter: Processes, llm: FaultyLlm, report: Report, way: str):
    llm.behaviour = Behaviour(first_ms=50, jitter_ms=20)  # slots are released one by one
    limit, http = {"algorithm": "fixed", "initial": 8, "queue": 100, "queue_ms": 1_000}, f"127.0.0.1:{free_port()}"
    gateway = await starter.gateway(llm.address, tenants=tenants("a", "b"), limit=limit, http_address=http)
    flood = apart(_flood, gateway.spec.address, 64) if way == "gRPC" else apart(_flood_by_http, f"http://{http}", 64)
    async with asking(gateway.spec.address, "key-b") as b:
        before = [await b.ask(f"Alone {number}?") for number in range(40)]
        with report.case(24, f"A floods with 64 calls at once by {way}, B asks") as row:
            async with flood as flooded:
                await asyncio.sleep(0.5)  # the queue fills
                outcomes = [await b.ask(f"Beside {number}?") for number in range(40)]
            row.count(*outcomes)
            assert all(outcome.ok for outcome in outcomes)
            assert flooded
            row.slowed("B's p99", times_s(before), times_s(outcomes), slack=3)  # behind all of A's calls it would be 8


async def _flood(address: str, at_once: int) -> AsyncIterator[bool]:
    """Whether a call of A's was refused, of each that has ended."""
    async with asking(address, "key-a") as a:

        async def refused() -> bool:
            return (await a.ask(f"Flood {time.monotonic_ns()}?", budget_ms=5_000)).failed

        async for each in _again_and_again(refused, at_once):
            yield each


async def _flood_by_http(url: str, at_once: int) -> AsyncIterator[bool]:
    """The same by HTTP."""
    limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
    headers = {"authorization": "Bearer key-a"}
    async with httpx.AsyncClient(base_url=url, headers=headers, limits=limits, timeout=20) as a:

        async def refused() -> bool:
            messages = [{"role": "user", "content": f"Flood {time.monotonic_ns()}?"}]
            return (await a.post("/v1/chat/completions", json={"model": MODEL, "messages": messages})).is_error

        async for each in _again_and_again(refused, at_once):
            yield each


async def _again_and_again(refused: Callable[[], Awaitable[bool]], at_once: int) -> AsyncIterator[bool]:
    """The results of `refused`, called so many times at once; a refused one pauses for 10 ms."""
    ended: asyncio.Queue[bool] = asyncio.Queue()

    async def go_on() -> None:
        while True:
            ended.put_nowait(was := await refused())
            if was:
                await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(go_on())
        while True:
            yield await ended.get()
