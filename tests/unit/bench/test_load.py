"""The load generator: latency counts from the scheduled arrival, and nothing is left out."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load import Arrival, OpenLoop, Outcome, Reply, closed_loop, poisson, read_gateway, read_llm
from bench.stats import percentiles
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2
from hedgerow.llm.v1 import llm_pb2
from services.gateway.answer.output import Output
from tests.clock import PausedClock

pytestmark = pytest.mark.paused


def due(*times_s: float) -> list[Arrival]:
    return [Arrival(at_s, b"") for at_s in times_s]


class Sleeper:
    """Sleeps on a paused clock, `late_s` longer than asked."""

    def __init__(self, clock: PausedClock, late_s: float = 0):
        self._clock, self._late_s = clock, late_s

    async def __call__(self, seconds: float) -> None:
        self._clock.advance(seconds + self._late_s)
        await asyncio.sleep(0)  # lets the calls that were sent begin


async def test_a_call_that_is_sent_late_counts_from_when_it_was_due() -> None:
    clock = PausedClock()

    async def ask(arrival: Arrival) -> Reply:
        clock.advance(0.2)
        return Reply(Outcome.OK)

    (sample,) = await OpenLoop(ask, clock=clock, sleep=Sleeper(clock, late_s=0.5)).run(due(1))
    assert sample.lag_s == pytest.approx(0.5)
    assert sample.total_s == pytest.approx(0.7)


async def test_an_arrival_waits_for_no_answer() -> None:
    clock, answered, asked = PausedClock(), asyncio.Event(), []

    async def ask(arrival: Arrival) -> Reply:
        asked.append(arrival.at_s)
        if arrival.at_s == 3:
            clock.advance(1)
            answered.set()
        await answered.wait()
        return Reply(Outcome.OK, clock())

    samples = await OpenLoop(ask, clock=clock, sleep=Sleeper(clock)).run(due(1, 2, 3))
    assert asked == [1, 2, 3]
    assert [sample.total_s for sample in samples] == pytest.approx([3, 2, 1])


async def test_an_arrival_with_too_many_open_calls_before_it_is_a_failure_and_not_left_out() -> None:
    release = asyncio.Event()

    async def ask(arrival: Arrival) -> Reply:
        await release.wait()
        return Reply(Outcome.OK)

    running = asyncio.create_task(OpenLoop(ask, most_in_flight=2).run(due(0, 0, 0)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    release.set()
    samples = await running
    assert [sample.outcome for sample in samples] == [Outcome.OK, Outcome.OK, Outcome.FAILED]
    assert samples[-1].total_s == float("inf")
    assert percentiles([sample.total_s for sample in samples])["p99"] == float("inf")


async def test_a_closed_loop_has_as_many_calls_open_as_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    open_calls, most, clock = 0, 0, PausedClock()
    monkeypatch.setattr("bench.load.time", SimpleNamespace(perf_counter=clock))

    async def ask(arrival: Arrival) -> Reply:
        nonlocal open_calls, most
        open_calls += 1
        most = max(most, open_calls)
        await asyncio.sleep(0)
        clock.advance(0.25)
        open_calls -= 1
        return Reply(Outcome.OK)

    samples = await closed_loop(ask, iter(due(*[0.0] * 9)), callers=3, seconds=1)
    assert (most, len(samples)) == (3, 6)


@given(seed=st.integers(), rate=st.floats(1, 200))
def test_arrivals_are_in_order_and_the_same_for_a_seed(seed: int, rate: float) -> None:
    times = poisson(rate, 2, random.Random(seed))
    assert times == sorted(times) == poisson(rate, 2, random.Random(seed))
    assert all(0 <= at < 2 for at in times)


def test_arrivals_come_at_the_rate() -> None:
    assert len(poisson(100, 100, random.Random(1))) == pytest.approx(10_000, rel=0.03)


def final(**fields: object) -> bytes:
    event = gateway_pb2.Event(final=gateway_pb2.Final(**{"text": "word", **fields}))  # type: ignore[arg-type]
    return gateway_pb2.GenerateResponse(events=[event]).SerializeToString()


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"finish_reason": chat_pb2.FINISH_REASON_STOP}, Outcome.OK),
        ({"finish_reason": chat_pb2.FINISH_REASON_STOP, "degraded": ["router:fallback"]}, Outcome.DEGRADED),
        ({"finish_reason": chat_pb2.FINISH_REASON_BUDGET, "degraded": ["llm:budget"]}, Outcome.TIMEOUT),
        ({"finish_reason": chat_pb2.FINISH_REASON_STOP, "text": ""}, Outcome.TIMEOUT),
        ({"finish_reason": chat_pb2.FINISH_REASON_INTERRUPTED, "degraded": ["llm:interrupted"]}, Outcome.FAILED),
    ],
)
def test_only_a_whole_answer_in_time_is_a_success(fields: dict[str, object], outcome: Outcome) -> None:
    _, reply = read_gateway(final(**fields))
    assert reply is not None
    assert reply.outcome == outcome


def test_a_hit_and_a_shared_generation_are_recognized() -> None:
    hit = gateway_pb2.CacheReport(verdict=gateway_pb2.CACHE_VERDICT_EXACT)
    joined = gateway_pb2.Decision(policy="single_flight", action="joined")
    assert read_gateway(final(cache=hit)) == (False, Reply(Outcome.OK, hit=True))
    assert read_gateway(final(decisions=[joined])) == (False, Reply(Outcome.OK, shared=True))


def test_text_is_seen_before_the_end() -> None:
    delta = gateway_pb2.Event(delta=gateway_pb2.TextDelta(text="word"))
    assert read_gateway(gateway_pb2.GenerateResponse(events=[delta]).SerializeToString()) == (True, None)
    assert read_llm(llm_pb2.GenerateResponse(text="word").SerializeToString()) == (True, None)
    end = llm_pb2.GenerateResponse(finish=llm_pb2.Finish(reason=chat_pb2.FINISH_REASON_STOP))
    assert read_llm(end.SerializeToString()) == (False, Reply(Outcome.OK))


REASONING = gateway_pb2.Event(reasoning=gateway_pb2.ReasoningDelta(text="Hm."))
CALL = chat_pb2.ToolCallDelta(name="find")


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (gateway_pb2.Event(delta=gateway_pb2.TextDelta(text="Hi.")), llm_pb2.GenerateResponse(text="Hi.")),
        (REASONING, llm_pb2.GenerateResponse(reasoning="Hm.")),
        (gateway_pb2.Event(tool_call=CALL), llm_pb2.GenerateResponse(tool_calls=[CALL])),
    ],
    ids=["text", "thought", "call"],
)
def test_an_answer_begins_for_a_bench_when_it_does_for_the_gateway(
    event: gateway_pb2.Event, message: llm_pb2.GenerateResponse
) -> None:
    encoded = gateway_pb2.GenerateResponse(events=[event]).SerializeToString()
    assert read_gateway(encoded) == (True, None)
    assert read_llm(message.SerializeToString()) == (True, None)
    written = Output(PausedClock())
    written.add_text(message.text) if message.text else None
    written.add_reasoning(message.reasoning, 1) if message.reasoning else None
    written.add_calls(message.tool_calls, 1) if message.tool_calls else None
    assert written.first_at is not None
