"""A call of a tool that is cancelled, at any await, holds no slot, no probe and no retry."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.trace import INVALID_SPAN

from services.gateway.policies.breaker import Throttled
from services.gateway.policies.slot import SlotRequest
from services.gateway.tools.listing import ListedTool
from services.gateway.tools.source_client import SourceClient
from services.runtime.deadline import Deadline
from services.runtime.errors import Unavailable
from tests.cancelling import Work, cancelled_at_every_await
from tests.clock import loop_clock
from tests.unit.gateway.answer.scene import EVERYTHING
from tests.unit.gateway.scripted_tools import Said, ScriptedTools, toolbox

pytestmark = pytest.mark.paused
GONE = Unavailable("gone")
RETRIES = 10.0  # saved up


class Flaky(ScriptedTools):
    """Fails first, and then answers as scripted."""

    def __init__(self, *says: tuple[float, Said]):
        super().__init__(weather=says[0])
        self.extras["weather"] = {"idempotent": True}
        self._says = list(says)

    async def call(self, call):
        self.says["weather"] = self._says[min(len(self.calls), len(self._says) - 1)]
        return await super().call(call)


async def client_of(source: ScriptedTools) -> tuple[SourceClient, ListedTool]:
    """With the retries that many calls have saved up."""
    (client,) = toolbox(source, own={"concurrency": 1, "queue_ms": 10_000})._clients.values()
    listing = await client.listing("acme", 1.0)
    assert listing
    for _ in range(int(RETRIES)):
        client._retry.count_request()
    (tool,) = listing.tools.values()
    return client, tool


async def call(client: SourceClient, tool: ListedTool) -> None:
    await client.call(tool, "{}", EVERYTHING, 0, 5.0, INVALID_SPAN, lambda: False)


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("says", [[(0.1, "rain")], [(0.1, GONE), (0.1, "rain")], [(0.1, GONE), (0.1, GONE)]])
@cancelled_at_every_await()
async def test_a_cancelled_tool_call_leaves_nothing_behind(says: list[tuple[float, Said]], busy: bool) -> Work:
    source = Flaky(*says)
    client, tool = await client_of(source)
    held = await client._limiter.enter(SlotRequest(0, "other", 1.0, Deadline.never(loop_clock))) if busy else None
    if held:
        asyncio.get_running_loop().call_later(0.5, held.release)
    yield call(client, tool)
    if held:
        held.release()
    assert (client._limiter.in_flight, client._limiter.waiting) == (0, 0)
    assert client._retry._budget.level == RETRIES - max(0, len(source.calls) - 1)
    await asyncio.sleep(600)
    assert client._breaker(tool).would_admit("acme")


async def test_a_retry_of_a_tool_that_is_closed_meanwhile_costs_nothing():
    source = Flaky((0.1, GONE))
    client, tool = await client_of(source)
    client._retry.pause_s = lambda error, within_s, tenant: 1.0 if client._retry.spend(tenant) else None
    calling = asyncio.create_task(call(client, tool))
    await asyncio.sleep(0.5)
    client._breaker(tool).enter("acme").throttled(30)
    with pytest.raises(Throttled):
        await calling
    assert (len(source.calls), client._retry._budget.level) == (1, RETRIES)


async def test_a_slot_granted_after_the_tools_breaker_opened_is_no_sample_of_a_short_call():
    client, tool = await client_of(Flaky((0.1, "rain")))
    held = await client._limiter.enter(SlotRequest(0, "other", 1.0, Deadline.never(loop_clock)))
    calling = asyncio.create_task(call(client, tool))
    await asyncio.sleep(4)
    client._breaker(tool).enter("acme").throttled(30)
    held.release()
    with pytest.raises(Throttled):
        await calling
    assert client._limiter.queue_capacity == pytest.approx(10 / 4)
