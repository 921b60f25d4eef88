"""When the tokens of a simulated model are due, and what it counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pydantic import ValidationError

from bench.jagged.engine import SimulatedEngine, Tally, TallyCollector
from bench.jagged.latency import ARTICLES, Mixture, Profile
from bench.simulated_llm import SimulatedLlm, SimulatedLlmSettings
from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.runtime.errors import NotSupported
from tests.clock import PausedClock
from tests.waiting import until


def an_engine(slots: int = 0, **profile: Any) -> tuple[SimulatedEngine, PausedClock]:
    clock = PausedClock()
    return SimulatedEngine(Profile(**profile), slots, seed=5, clock=clock), clock


def held(engine: SimulatedEngine, release: asyncio.Event, ended: list[float]) -> Awaitable[None]:
    """A call that stays until it is released."""

    async def call() -> None:
        async with engine.call() as queue_ms:
            await release.wait()
            ended.append(queue_ms)

    return asyncio.create_task(call())


def test_the_first_token_and_those_after_it_have_times_of_their_own() -> None:
    engine, clock = an_engine(first=Mixture(200), each_ms=10)
    assert [due - clock() for due in engine.schedule(3)] == pytest.approx([0.2, 0.21, 0.22])


async def test_calls_beyond_the_slots_wait_inside_first_come_first_served() -> None:
    engine, clock = an_engine(slots=1)
    first, second, third, waits = asyncio.Event(), asyncio.Event(), asyncio.Event(), list[float]()
    calls = [held(engine, event, waits) for event in (first, second, third)]
    await until(lambda: (engine.tally.running, engine.tally.waiting) == (1, 2))
    third.set()
    clock.advance(0.5)
    first.set()
    await until(lambda: (engine.tally.finished, engine.tally.waiting) == (1, 1))
    clock.advance(0.25)
    second.set()
    await asyncio.gather(*calls)
    assert waits == pytest.approx([0, 500, 750])
    assert engine.tally == Tally(started=3, finished=3, prompt_tokens=24)


async def test_a_cancelled_call_frees_its_slot() -> None:
    engine, _ = an_engine(slots=1)
    release, waits = asyncio.Event(), list[float]()
    running, waiting, last = (asyncio.ensure_future(held(engine, release, waits)) for _ in range(3))
    await until(lambda: engine.tally.waiting == 2)
    waiting.cancel()
    running.cancel()
    release.set()
    await last
    assert (engine.tally.cancelled, engine.tally.finished) == (2, 1)
    assert (engine.tally.running, engine.tally.waiting) == (0, 0)


def test_the_counts_of_the_engine_are_among_the_metrics() -> None:
    registry = CollectorRegistry()
    registry.register(TallyCollector(Tally(started=3)))
    assert b"simulated_provider_started 3.0" in generate_latest(registry)


def a_request(prefix: str = "", max_tokens: int | None = 4) -> llm_pb2.GenerateRequest:
    sampling = chat_pb2.Sampling(max_tokens=max_tokens)
    return llm_pb2.GenerateRequest(messages=[chat_pb2.Message(content="?")], sampling=sampling, prefix=prefix)


async def answer(request: llm_pb2.GenerateRequest, **settings: Any) -> list[llm_pb2.GenerateResponse]:
    return [reply async for reply in SimulatedLlm(SimulatedLlmSettings(**settings)).Generate(request, None)]  # type: ignore[arg-type]


async def test_the_last_word_and_the_finish_travel_together() -> None:
    replies = await answer(a_request())
    assert [reply.HasField("finish") for reply in replies] == [False, False, False, True]
    assert not replies[-1].finish.HasField("queue_ms")
    assert (await answer(a_request(), slots=1))[-1].finish.HasField("queue_ms")


async def test_the_engine_continues_a_broken_text() -> None:
    begun = a_request("word word word ", max_tokens=None)
    assert len(await answer(begun, continues=True, tokens=4)) == 1
    as_asked = a_request("word word word ", max_tokens=9)
    assert len(await answer(as_asked, continues=True)) == 9
    with pytest.raises(NotSupported):
        await answer(a_request(prefix="word "))


def test_a_profile_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEDGEROW_SIMULATED_LLM_PROFILE", ARTICLES.to_json())
    assert SimulatedLlmSettings().profile == ARTICLES


@pytest.mark.parametrize("text", ['{"frist": {}}', '{"each_ms": -1}', '{"first": {"tail_share": 2}}'])
def test_an_invalid_profile_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEDGEROW_SIMULATED_LLM_PROFILE", text)
    with pytest.raises(ValidationError, match="profile"):
        SimulatedLlmSettings()
