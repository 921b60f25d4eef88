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
from tests.fault.asking import Asker, Outcome, asking
from tests.fault.beside import asking_beside, check, honest
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
        crowd = [await enter(asking(at, "key-a")) for _ in range(-(-number // _ON_ONE))]
        b = await enter(asking(at, "key-b"))
        before = await honest(b, 40)
        with report.case(45, f"{number:,} callers with one idempotency key at once") as row:
            async with asking_beside(b) as during:
                ended = list[Outcome]()
                tasks = [asyncio.create_task(_follow(crowd[n % len(crowd)], ended)) for n in range(number)]
                await until(lambda: len(ended) == number - _CONCURRENCY, 120)
                refused = list(ended)
                llm.released.set()
                await asyncio.gather(*tasks)
            check(row, before, during)
            row.count(*ended)
            assert {each.code for each in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
            assert all(each.retry_delay_s for each in refused)
            served = ended[len(refused) :]
            assert [each.text for each in served] == [WORD * _WORDS] * _CONCURRENCY
        with report.case(45, f"{number:,} callers read that answer again") as row:
            async with asking_beside(b) as during:
                began = time.monotonic()
                again = await _read_again(crowd, number)
                seconds = time.monotonic() - began
            check(row, before, during)
            row.count(*again)
            ok = [each for each in again if each.code is grpc.StatusCode.OK]
            assert {each.text for each in ok} == {WORD * _WORDS}
            assert {each.code for each in again} == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
            assert len(ok) <= _BURST + _RATE * seconds + 1
        assert sum(attempt.question == _SAME for attempt in llm.attempts) == 1


async def _ask(caller: Asker) -> Outcome:
    return await caller.ask(_SAME, idempotency_key="one", budget_ms=60_000)


async def _follow(caller: Asker, ended: list[Outcome]) -> None:
    ended.append(await _ask(caller))


async def _read_again(crowd: list[Asker], number: int) -> list[Outcome]:
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(caller: Asker) -> Outcome:
        async with places:
            return await _ask(caller)

    return await asyncio.gather(*(one(crowd[n % len(crowd)]) for n in range(number)))
