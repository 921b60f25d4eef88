"""Hedges, retries and resumed calls: what they hold and spend is given back where no call is made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from services.gateway.generation.stack import make_stack
from services.gateway.policies.race import Race
from services.gateway.policies.single_flight import FlightReader
from services.gateway.settings.generation import BreakerSettings
from services.gateway.upstream.fleet import Fleet
from services.gateway.upstream.replica import make_breaker
from services.runtime.errors import Exhausted
from tests.cancelling import settled
from tests.clock import loop_clock
from tests.unit.gateway.generation.scene import GONE, HEDGE, Scene, calls, says
from tests.unit.gateway.scripted import ScriptedLlm, finish, fleet, text

pytestmark = pytest.mark.paused


def hedging(share: float, **llms: object) -> Fleet:
    """Hedges after 100 ms; replicas have all of the time."""
    hedge = {"mode": "fixed", "delay_ms": 100, "max_share": share, "burst": 10}
    return fleet(loop_clock, {"hedge": hedge, "kept_share": 0.0}, **llms)


async def test_a_request_without_another_healthy_replica_leaves_the_queue_of_hedges():
    behind = hedging(0.5, stuck=[ScriptedLlm(None), ScriptedLlm(None)], m=[says("slow", 20.0), says("quick", 0.05)])
    waits = make_stack(behind, lambda _: None).read(b"", Scene(behind, models=("stuck",)).job, 60.0)
    await asyncio.sleep(0.2)  # it is in line: half a second call is saved
    behind.pools["stuck"].replicas[1].breaker.enter("acme").throttled(30)
    for _ in range(20):
        behind.count_request()
    await asyncio.sleep(0.5)
    other = Scene(behind, models=("m",), budget_s=30.0)
    reader = make_stack(behind, lambda _: None).read(b"", other.job, 30.0).reader
    began = loop_clock()
    await reader.take()
    took_s = loop_clock() - began
    reader.close()
    waits.reader.close()
    await settled()
    assert took_s == pytest.approx(0.15)


async def test_no_hedge_and_no_resumed_call_begins_when_the_time_is_over():
    """A model would read the prompt in vain, and its tenant would pay for it."""
    behind = hedging(0.001, m=[ScriptedLlm(None), says("b")])
    asyncio.get_running_loop().call_later(0.999, behind.hedges.put, 1)
    assert len((await Scene(behind, budget_s=1.0).run()).report.calls) == 1
    behind = retrying(m=[ScriptedLlm(text("half "), 0.999, GONE), says("b")])
    assert len((await Scene(behind, budget_s=1.0).run()).report.calls) == 1


def slots(number: int) -> dict[str, object]:
    """As many may wait as that many slots become free within a second."""
    return {"limit": {"algorithm": "fixed", "initial": number, "queue": 1_000, "queue_ms": 1_000}}


def broken_off() -> ScriptedLlm:
    return ScriptedLlm(10.0, text("half "), GONE)


@pytest.mark.parametrize(
    ("settings", "replicas"),
    [
        pytest.param({"hedge": {**HEDGE, "max_share": 0.001}}, [says("x", 10.0), says("x", 10.0)], id="hedge"),
        pytest.param({"retry": {"max_share": 0.001}}, [broken_off(), says("x")], id="resume"),
    ],
)
async def test_the_slot_of_an_extra_call_that_is_not_made_is_no_sample_of_a_short_call(settings, replicas):
    behind = fleet(loop_clock, {"hedge": {"mode": "off"}, "kept_share": 0.0, **slots(4), **settings}, m=replicas)
    for _ in range(2):
        await Scene(behind, budget_s=60.0).run()
    assert behind.pools["m"].limiter.queue_capacity == pytest.approx(4 / 10, rel=0.01)


async def test_a_slot_granted_after_the_breaker_opened_is_no_sample_of_a_short_call():
    behind = fleet(loop_clock, {**slots(1), "hedge": {"mode": "off"}}, m=says("x", 10.0))
    pool = behind.pools["m"]
    held = await pool.limiter.enter(Scene(behind).job.slot_request)
    waits = asyncio.create_task(Scene(behind).run())
    await asyncio.sleep(0.5)
    pool.replicas[0].breaker.enter("acme").throttled(30)
    held.release()
    assert isinstance((await waits).error, Exhausted)
    assert pool.limiter.queue_capacity == pytest.approx(1 / 0.5)


async def test_a_hedge_refused_by_the_breaker_after_it_was_paid_for_is_refunded():
    behind = hedging(1.0, m=[says("a", 1.0), says("b", 1.0)])
    spend = behind.hedges.spend

    def spend_and_close(race: Race[Any], *whose: Any) -> bool:
        behind.pools["m"].replicas[1].breaker.enter("acme").throttled(30)
        return spend(race, *whose)

    behind.hedges.spend = spend_and_close
    scene = await Scene(behind).run()
    assert (len(scene.report.calls), behind.hedges._budget.level) == (1, 1)


async def test_a_hedge_that_begins_as_the_first_call_fails_wins_in_either_order():
    """Both at the same time, each after some turns of the loop: in one of them the two meet."""
    firsts = set[str | None]()
    for fails, begins in product(range(5), range(5)):
        first, second = [0.2, *fails * [0.0], GONE], [0.1, *begins * [0.0], text("b"), finish()]
        both = [ScriptedLlm(*first), ScriptedLlm(*second)]
        behind = fleet(loop_clock, {"hedge": HEDGE, "retry": {"max_share": 1}}, m=both)
        scene = await Scene(behind).run()
        assert (scene.words, scene.decisions) == ("b", [("hedge", "started"), ("hedge", "won")])
        assert (behind.hedges._budget.level, behind.retry._budget.level) == (0, 1)
        firsts.add(scene.report.calls[0].outcome)
    assert firsts == {"failed", "lost"}


def retrying(**llms: object) -> Fleet:
    """Each request earns a retry."""
    return fleet(loop_clock, {"hedge": {"mode": "off"}, "retry": {"max_share": 1}}, **llms)


async def test_a_stream_that_breaks_where_no_other_replica_can_go_on_costs_no_retry():
    behind = retrying(m=ScriptedLlm(text("half "), GONE))
    scene = await Scene(behind).run()
    assert (len(scene.report.calls), behind.retry._budget.level) == (1, 1)


async def test_a_failure_that_closes_the_only_replica_costs_no_retry_and_reports_none():
    behind = retrying(m=ScriptedLlm(GONE))
    behind.pools["m"].replicas[0].breaker = make_breaker(BreakerSettings(in_a_row=1), "m", behind.pools["m"].baseline)
    assert (await Scene(behind).run()).decisions == []
    assert behind.retry._budget.level == 1


def close(behind: Fleet, reader: FlightReader[Any]) -> None:
    for replica in behind.pools["m"].replicas:
        replica.breaker.enter("acme").throttled(30)


def leave(behind: Fleet, reader: FlightReader[Any]) -> None:
    reader.close()


@pytest.mark.parametrize("meanwhile", [close, leave])
async def test_a_retry_that_is_not_sent_after_its_pause_costs_nothing(
    meanwhile: Callable[[Fleet, FlightReader[Any]], None],
):
    both = [ScriptedLlm(GONE), ScriptedLlm(GONE)]
    behind = retrying(m=both)
    behind.retry.pause_s = lambda error, within_s, tenant: 1.0 if behind.retry.spend(tenant) else None
    reader = make_stack(behind, lambda _: None).read(b"", Scene(behind).job, 60.0).reader
    await asyncio.sleep(0.5)
    assert behind.retry._budget.level == 0
    meanwhile(behind, reader)
    await asyncio.sleep(1)
    reader.close()
    assert (calls(*both), behind.retry._budget.level) == ([1, 0], 1)


class Closed(ScriptedLlm):
    """A replica with a closed connection: no call can be made."""

    def generate(self, request, timeout_s, metadata):
        raise RuntimeError("the channel is closed")


class Mad(ScriptedLlm):
    """Reading from it is a bug."""

    def generate(self, request, timeout_s, metadata):
        completion = super().generate(request, timeout_s, metadata)
        completion.read = self._break
        return completion

    async def _break(self):
        raise RuntimeError("a bug")


@pytest.mark.parametrize("kind", [Closed, Mad])
async def test_a_call_that_ends_by_a_bug_releases_its_slot_and_its_probe(kind: type[ScriptedLlm]):
    behind = retrying(m=kind())
    pool = behind.pools["m"]
    replica = pool.replicas[0]
    replica.breaker.enter("acme").throttled(1)
    await asyncio.sleep(2)  # the next call is its probe
    reader = make_stack(behind, lambda _: None).read(b"", Scene(behind).job, 60.0).reader
    with pytest.raises(RuntimeError):
        await reader.take()
    reader.close()
    assert (pool.limiter.in_flight, replica.in_flight) == (0, 0)
    await asyncio.sleep(10)
    assert replica.breaker.would_admit("acme")
