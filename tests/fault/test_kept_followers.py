"""Thousands of clients of one answer, by its idempotency key, and thousands that read it again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import grpc
import pytest

from hedgerow.llm.v1 import llm_pb2
from tests.fault.apart import apart
from tests.fault.asking import Asker, Outcome, asking, times_s
from tests.fault.bare_calls import Slowed
from tests.fault.bare_gateway import bare_gateway
from tests.fault.beside import asking_beside, check, honest_before
from tests.fault.faulty_llm import SERVICE, WORD, Behaviour, FaultyLlm, serving
from tests.fault.mesh import UNLIMITED, Processes
from tests.fault.report import Report
from tests.keys import tenants
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]
_CONCURRENCY, _RATE, _BURST = 8, 50, 100  # of tenant A
_ON_ONE = 100  # calls at once on a connection
_AT_ONCE = 32  # of those that read the answer again
_SAME = "The same?"
_WORDS = 4


@dataclass
class HeldLlm(FaultyLlm):
    """Says the end of its answer to `_SAME` once that is released."""

    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def _answer(
        self, request: llm_pb2.GenerateRequest, how: Behaviour
    ) -> AsyncIterator[llm_pb2.GenerateResponse]:
        async for message in super()._answer(request, how):
            if message.HasField("finish") and request.messages[-1].content == _SAME:
                await self.released.wait()
            yield message


async def test_each_client_of_one_answer_counts_as_its_tenants(starter: Processes, report: Report, full_size: bool):
    number = 5_000 if full_size else 300
    allowance = {"concurrency": _CONCURRENCY, "requests_per_s": _RATE, "requests_burst": _BURST}
    of_both = tenants("a", "b")
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        llm = HeldLlm()
        behind = await enter(serving(SERVICE, llm))
        gateway = await starter.gateway(
            behind,
            tenants={**of_both, "a": of_both["a"] | allowance},
            stall_ms=0,
            default_budget_ms=60_000,
            **UNLIMITED,
        )
        at = gateway.spec.address
        b = await enter(asking(at, "key-b"))
        before = await honest_before(b)
        with report.case(45, f"{number:,} callers with one idempotency key at once") as row:
            async with asking_beside(b) as during, apart(_crowd, at, number, number) as ended:
                await until(lambda: len(ended) == number - _CONCURRENCY, 120)
                refused = list(ended)
                llm.released.set()
                await until(lambda: len(ended) == number, 20)
            check(row, before, during, await _at_a_bare_server(number))
            row.count(*ended)
            assert {each.code for each in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
            assert all(each.retry_delay_s for each in refused)
            served = ended[len(refused) :]
            assert [each.text for each in served] == [WORD * _WORDS] * _CONCURRENCY
        with report.case(45, f"{number:,} callers read that answer again") as row:
            async with asking_beside(b) as during:
                began = time.monotonic()
                async with apart(_crowd, at, number, _AT_ONCE) as again:
                    await until(lambda: len(again) == number, 120)
                seconds = time.monotonic() - began
            check(row, before, during)
            row.count(*again)
            ok = [each for each in again if each.code is grpc.StatusCode.OK]
            assert {each.text for each in ok} == {WORD * _WORDS}
            assert {each.code for each in again} == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
            assert len(ok) <= _BURST + _RATE * seconds + 1
        assert sum(attempt.question == _SAME for attempt in llm.attempts) == 1


async def _at_a_bare_server(number: int) -> Slowed:
    """A caller before as many calls at once and beside them, at a server of `grpc.aio` alone."""
    async with bare_gateway() as address, asking(address) as caller:
        before = await honest_before(caller)
        async with asking_beside(caller) as during, apart(_crowd, address, number, number) as ended:
            await until(lambda: len(ended) == number, 120)
    return Slowed(times_s(before), times_s(during))


async def _crowd(address: str, number: int, at_once: int) -> AsyncIterator[Outcome]:
    """So many calls, `at_once` of them under way; how each ended."""
    ended: asyncio.Queue[Outcome] = asyncio.Queue()
    slots = asyncio.Semaphore(at_once)

    async def ask(caller: Asker) -> None:
        async with slots:
            ended.put_nowait(await caller.ask(_SAME, idempotency_key="one", budget_ms=60_000))

    async with AsyncExitStack() as stack:
        callers = [
            await stack.enter_async_context(asking(address, "key-a"))
            for _ in range(-(-min(number, at_once) // _ON_ONE))
        ]
        async with asyncio.TaskGroup() as group:
            for each in range(number):
                group.create_task(ask(callers[each % len(callers)]))
            for _ in range(number):
                yield await ended.get()
