"""A cancelled caller, at whichever await, leaves slots, permits, budgets and bills as they were."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from services.gateway.generation.stack import make_stack
from services.gateway.policies.concurrency_limit import FixedLimit
from services.gateway.policies.limiter import Limiter
from services.gateway.policies.single_flight import Flight
from services.gateway.policies.slot import SlotRequest
from services.gateway.prefix_warmup import probe as touched
from services.gateway.prefix_warmup import touch
from services.gateway.upstream.fleet import Fleet
from services.runtime.deadline import Deadline
from tests.cancelling import Work, cancelled_at_every_await
from tests.clock import loop_clock
from tests.unit.gateway.generation.scene import GONE, Scene, too_busy
from tests.unit.gateway.scripted import ScriptedLlm, Step, finish, fleet, text
from tests.unit.gateway.upstream import test_llm

BUDGET = 100.0  # of extra calls, saved up


@pytest.mark.parametrize("in_background", [False, True])
@cancelled_at_every_await(awaits=2)
async def test_at_a_limiter(in_background: bool) -> Work:
    limiter = Limiter("m", FixedLimit(1), 10, 60, shed_load=1, clock=loop_clock)
    held = await limiter.enter(SlotRequest(100, "other", 1.0, Deadline.never(loop_clock)))
    release = asyncio.get_running_loop().call_later(1, held.release)
    placed = (lambda: None) if in_background else None

    async def work() -> None:
        slot = await limiter.enter(SlotRequest(100, "acme", 1.0, Deadline.after(60, loop_clock), placed))
        try:
            await asyncio.sleep(1)
        finally:
            slot.release()

    yield work()
    release.cancel()
    held.release()
    assert (limiter.in_flight, limiter.waiting, len(limiter._backlog), limiter._in_batches) == (0, 0, 0, 0)
    assert not limiter._shares._tenants


def behind(settings: dict[str, Any] | None = None, **llms: object) -> Fleet:
    """A fleet whose budgets of extra calls are full."""
    given = settings or {}
    budget = {"max_share": 1, "burst": BUDGET}
    hedge, retry = {"mode": "off", **budget, **given.get("hedge", {})}, {**budget, **given.get("retry", {})}
    fleet_ = fleet(loop_clock, {**given, "hedge": hedge, "retry": retry}, **llms)
    for _ in range(int(BUDGET)):
        fleet_.count_request()
    return fleet_


async def assert_as_before(fleet_: Fleet, job: Any) -> None:
    kinds = [call.kind for call in job.report.calls]
    for pool in fleet_.pools.values():
        assert (pool.limiter.in_flight, pool.limiter.waiting, len(pool.limiter._backlog)) == (0, 0, 0)
        for replica in pool.replicas:
            assert replica.in_flight == 0
            llm: Any = replica.llm
            assert all(call.closed or call.finish for call in llm.calls)
    assert not fleet_.hedges._queue
    assert fleet_.hedges._budget.level == BUDGET - kinds.count("hedge")
    models = {call.pool.model for call in job.report.calls if call.kind != "hedge"}
    assert fleet_.retry._budget.level == BUDGET - (len(kinds) - kinds.count("hedge") - len(models))
    await asyncio.sleep(600)
    for pool in fleet_.pools.values():
        assert all(replica.breaker.would_admit("acme") for replica in pool.replicas), (
            "a breaker still waits for a probe"
        )


HEDGE = {"mode": "fixed", "delay_ms": 100}
ONE_SLOT = {"algorithm": "fixed", "initial": 1, "queue_ms": 10_000}
GENERATIONS: dict[str, tuple[dict[str, Any], dict[str, list[list[Step]]], dict[str, Any]]] = {
    "a first call": ({}, {"m": [[0.1, text("a"), 0.1, text("b"), finish()]]}, {}),
    "a hedge that wins": ({"hedge": HEDGE}, {"m": [[5.0, text("a"), finish()], [0.2, text("b"), finish()]]}, {}),
    "a hedge that loses": ({"hedge": HEDGE}, {"m": [[0.2, text("a"), finish()], [5.0, text("b"), finish()]]}, {}),
    "a hedge that fails": ({"hedge": HEDGE}, {"m": [[0.3, text("a"), finish()], [0.1, GONE]]}, {}),
    "a hedge whose first call fails": ({"hedge": HEDGE}, {"m": [[0.2, GONE], [0.2, text("b"), finish()]]}, {}),
    "tied calls": ({"hedge": {"mode": "tied"}}, {"m": [[0.2, text("a"), finish()], [0.1, text("b"), finish()]]}, {}),
    "two replicas and a kept share": ({"kept_share": 0.4}, {"m": [[None], [0.2, text("b"), finish()]]}, {}),
    "a retry": ({"retry": {"base_ms": 10}}, {"m": [[0.1, GONE], [0.1, text("b"), finish()]]}, {}),
    "a retry of what is throttled elsewhere": ({}, {"m": [[0.1, GONE], [0.1, too_busy()]]}, {}),
    "a retry of what is throttled here": ({}, {"m": [[0.1, too_busy()], [0.1, text("b"), finish()]]}, {}),
    "an overloaded stream": ({}, {"m": [[text("a"), 0.1, too_busy()], [0.1, text("b"), finish()]]}, {}),
    "another model": ({}, {"m": [[0.1, too_busy()]], "n": [[0.1, text("b"), finish()]]}, {}),
    "a stream that goes on elsewhere": ({}, {"m": [[text("a"), 0.1, GONE], [0.1, text("b"), finish()]]}, {}),
    "a silence that goes on elsewhere": (
        {"stall_ms": 1_000},
        {"m": [[text("a"), None], [0.1, text("b"), finish()]]},
        {},
    ),
    "a slot that is waited for": ({"limit": ONE_SLOT}, {"m": [[0.1, text("a"), finish()]]}, {}),
    "an item of a batch": ({"limit": ONE_SLOT}, {"m": [[0.1, text("a"), finish()]]}, {"on_slot": lambda: None}),
    "a probe": ({}, {"m": [[0.1, text("a"), 0.1, finish()]]}, {"throttled": True}),
    "a deadline": ({}, {"m": [[5.0, text("a"), finish()]]}, {"budget_s": 1.0}),
}


@pytest.mark.parametrize("name", GENERATIONS)
@pytest.mark.parametrize("make", [ScriptedLlm, test_llm.ScriptedLlm], ids=["scripted", "gRPC"])
@cancelled_at_every_await()
async def test_in_a_generation(name: str, make: type[ScriptedLlm]) -> Work:
    """Also for calls that are cancelled as gRPC's are: the reader is notified a turn later."""
    settings, scripts, how = GENERATIONS[name]
    llms = {model: [make(*script) for script in each] for model, each in scripts.items()}
    fleet_ = behind(settings, **llms)
    order = Scene(fleet_, budget_s=how.get("budget_s", 20.0))
    pool = fleet_.pools["m"]
    if how.get("throttled"):
        pool.replicas[0].breaker.enter("acme").throttled(1)
        await asyncio.sleep(2)
    job, held = order.job, None
    if "limit" in settings:
        job = replace(job, slot_request=replace(job.slot_request, on_slot=how.get("on_slot")))
        held = await pool.limiter.enter(SlotRequest(100, "other", 1.0, Deadline.never(loop_clock)))
        release = asyncio.get_running_loop().call_later(0.5, held.release)
    flight = Flight[Any]()
    yield make_stack(fleet_, order.observed.append)._inner(job, flight)
    if held:
        release.cancel()
        held.release()
    await assert_as_before(fleet_, job)


@pytest.mark.paused
@pytest.mark.parametrize("name", [name for name, (settings, _, _) in GENERATIONS.items() if "limit" not in settings])
@pytest.mark.parametrize("make", [ScriptedLlm, test_llm.ScriptedLlm], ids=["scripted", "gRPC"])
async def test_when_the_last_reader_leaves(name: str, make: type[ScriptedLlm]):
    settings, scripts, how = GENERATIONS[name]
    for tenth in range(8):
        fleet_ = behind(settings, **{model: [make(*script) for script in each] for model, each in scripts.items()})
        job = Scene(fleet_, budget_s=how.get("budget_s", 20.0)).job
        reader = make_stack(fleet_, lambda _: None).read(b"", job, 20.0).reader
        await asyncio.sleep(tenth / 20)
        reader.close()
        await asyncio.sleep(0.01)
        calls = len(job.report.calls)
        await assert_as_before(fleet_, job)
        assert len(job.report.calls) == calls, "nothing is sent after the last reader has left"


@pytest.mark.parametrize("busy", [False, True])
@cancelled_at_every_await(awaits=2)
async def test_in_a_warm_up_call(busy: bool) -> Work:
    fleet_ = behind({"limit": ONE_SLOT}, m=[ScriptedLlm(0.1, text("a"), 0.1, finish())])
    pool = fleet_.pools["m"]
    held = await pool.limiter.enter(SlotRequest(100, "other", 1.0, Deadline.never(loop_clock))) if busy else None
    if held:
        asyncio.get_running_loop().call_later(0.5, held.release)
    yield touch(pool, pool.replicas[0], touched("You are kind.", "salt"), 5.0, loop_clock, None)
    if held:
        held.release()
    await assert_as_before(fleet_, Scene(fleet_).job)
