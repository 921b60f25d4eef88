"""A large batch does not delay interactive requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from tests.fault.asking import Asker, Outcome, asking, question, times_s
from tests.fault.faulty_llm import Behaviour, FaultyLlm
from tests.fault.mesh import Processes
from tests.fault.report import Report, Row
from tests.keys import tenants

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]
_ITEMS = 64
_BUDGET_MS = 20_000
_LATE_S = 0.5  # after an item's budget, for its way back


@dataclass(frozen=True, slots=True)
class Item:
    """How one item of a batch ended, and when, in seconds after the batch began."""

    result: pb.GenerateBatchResponse
    seconds: float

    @property
    def ok(self) -> bool:
        return self.result.HasField("final") and not self.result.final.degraded


async def items(caller: Asker, name: str, number: int = _ITEMS) -> AsyncIterator[Item]:
    """Ask a batch of different questions; its items as they end."""
    requests = [question(f"{name} {index}?", budget_ms=_BUDGET_MS) for index in range(number)]
    began = time.monotonic()
    call = caller.stub.GenerateBatch(
        pb.GenerateBatchRequest(requests=requests), metadata=caller.metadata, timeout=_BUDGET_MS / 1000 + 10
    )
    async for result in call:
        yield Item(result, time.monotonic() - began)


async def batch(caller: Asker, name: str, number: int = _ITEMS) -> list[Item]:
    return [item async for item in items(caller, name, number)]


def count(row: Row, *batches: Sequence[Item]) -> None:
    """All of them must have been answered, each once; a late one is no answer."""
    for each in batches:
        ok = sum(item.ok for item in each)
        row.tally(ok=ok, failed=len(each) - ok)
        assert sorted(item.result.index for item in each) == list(range(_ITEMS))
        assert ok == _ITEMS, [str(item.result.error) for item in each if not item.ok][:3]
        row.measured("the last item", max(item.seconds for item in each), _BUDGET_MS / 1000 + _LATE_S, " s")


async def test_all_of_a_batch_on_an_idle_mesh_is_answered(starter: Processes, llm: FaultyLlm, report: Report):
    llm.behaviour = Behaviour(first_ms=200, jitter_ms=50)
    gateway = await starter.gateway(llm.address)
    async with asking(gateway.spec.address) as caller:
        with report.case(33, "a batch of 64 on an idle mesh") as row:
            count(row, done := await batch(caller, "Idle"))
            row.measured("the whole batch", done[-1].seconds, _BUDGET_MS / 1000, " s")


async def test_two_batches_share_what_others_can_spare(
    starter: Processes, llm: FaultyLlm, report: Report, full_size: bool
):
    llm.behaviour = Behaviour(first_ms=100, jitter_ms=20)
    gateway = await starter.gateway(llm.address, tenants=tenants("a", "b", "c"))
    address = gateway.spec.address
    async with asking(address, "key-a") as a, asking(address, "key-b") as b, asking(address, "key-c") as c:
        before = await _asked(c, 400 if full_size else 50)
        with report.case(33, "two batches of 64 at once, and interactive calls beside them") as row:
            first, second = asyncio.create_task(batch(a, "First")), asyncio.create_task(batch(b, "Second"))
            beside = await _asked(c, 400 if full_size else 50)
            done = await asyncio.gather(first, second)
            count(row, *done)
            row.count(*beside)
            assert all(outcome.ok for outcome in beside)
            row.slowed("interactive p99", times_s(before), times_s(beside))
            ends = sorted(each[-1].seconds for each in done)
            assert ends[0] > ends[1] / 2, "one batch finished long before the other"


async def _asked(caller: Asker, number: int) -> list[Outcome]:
    """Questions of an interactive caller, which waits for each five answers."""
    outcomes: list[Outcome] = []
    while len(outcomes) < number:
        now = time.monotonic_ns()
        outcomes += await asyncio.gather(*(caller.ask(f"Beside {now}-{each}?", budget_ms=5_000) for each in range(5)))
    return outcomes


@pytest.mark.parametrize(
    "quota",
    [{"concurrency": 4}, {"requests_per_s": 40, "requests_burst": 4}, {"tokens_per_minute": 30_000}],
    ids=lambda quota: next(iter(quota)),
)
async def test_a_batch_waits_for_its_tenants_quota(
    starter: Processes, llm: FaultyLlm, report: Report, quota: dict[str, float]
):
    llm.behaviour = Behaviour(first_ms=50)
    (limited,) = tenants("a").values()
    gateway = await starter.gateway(llm.address, tenants={"a": limited | quota})
    async with asking(gateway.spec.address, "key-a") as caller:
        with report.case(33, f"a batch of 64 of a tenant with a quota of {next(iter(quota))}") as row:
            count(row, await batch(caller, "Limited"))
    if "concurrency" in quota:
        assert llm.peak <= quota["concurrency"]
