"""A quota of tokens holds for what models read, however answers end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from tests.fault.asking import Asker, asking
from tests.fault.faulty_llm import Behaviour, FaultyLlm
from tests.fault.mesh import Processes
from tests.fault.report import Report
from tests.keys import tenants
from tests.redis import redis_server
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(60)]
_PER_MINUTE = 2_000
_REQUESTS = 15
_WORDS = 1_200  # of a prompt: as many tokens to this engine, and 1,500 as the gateway estimates
Asking = Callable[[Asker, str, FaultyLlm], Awaitable[None]]


async def _cut(caller: Asker, prompt: str, llm: FaultyLlm) -> None:
    """The budget ends it in mid-answer."""
    await caller.ask(prompt, budget_ms=1_000)


async def _cancelled(caller: Asker, prompt: str, llm: FaultyLlm) -> None:
    """The caller leaves as soon as the model is asked."""
    before, asked = len(llm.attempts), caller.start(prompt)
    ending = asyncio.create_task(asked.end())
    await until(lambda: len(llm.attempts) > before or ending.done())
    asked.cancel()
    await asyncio.wait({ending})


@pytest_asyncio.fixture(loop_scope="session")
async def callers(
    request: pytest.FixtureRequest, starter: Processes, llm: FaultyLlm, tmp_path: Path
) -> AsyncIterator[list[Asker]]:
    """One tenant's, each of a gateway of its own; with Redis two gateways share its quota."""
    (limited,) = tenants("a").values()
    settings = {"tenants": {"a": limited | {"tokens_per_minute": _PER_MINUTE}}}
    async with AsyncExitStack() as stack:
        if request.param == "Redis":
            settings["redis_url"] = (await stack.enter_async_context(redis_server(tmp_path))).url
        number = 2 if request.param == "Redis" else 1
        gateways = await asyncio.gather(*(starter.gateway(llm.address, **settings) for _ in range(number)))
        yield [await stack.enter_async_context(asking(each.spec.address, "key-a")) for each in gateways]


@pytest.mark.parametrize("ask", [_cut, _cancelled], ids=["cut", "cancelled"])
@pytest.mark.parametrize("callers", ["one process", "Redis"], indirect=True)
async def test_answers_that_end_early_have_read_their_prompts(
    callers: list[Asker], llm: FaultyLlm, report: Report, ask: Asking, request: pytest.FixtureRequest
):
    llm.behaviour = Behaviour(first_ms=50, each_ms=50, tokens=1_000)
    where = "Redis" if len(callers) > 1 else "one gateway"
    how = request.node.callspec.id.rpartition("-")[2]
    with report.case(31, f"answers that are {how}, under a quota of tokens ({where})") as row:
        began = time.monotonic()
        for number in range(_REQUESTS):
            for caller in callers:
                await ask(caller, f"{number} {time.monotonic_ns()} " + "word " * _WORDS, llm)
        read = sum(len(attempt.question.split()) for attempt in llm.attempts)
        quota = _PER_MINUTE * (1 + (time.monotonic() - began) / 60)
        row.tally(ok=len(llm.attempts), failed=_REQUESTS * len(callers) - len(llm.attempts))
        assert llm.attempts
        row.measured("tokens read", read / quota, 1.2, " × quota", slack=1)
        refused = await callers[-1].ask("word " * _WORDS)
        assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refused.retry_delay_s
