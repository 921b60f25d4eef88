"""Connections to OpenAI-compatible servers: opened early, kept, replaced, and given back."""

from __future__ import annotations

import asyncio

import pytest

from services.llm.engine import FinishReason, Load, Request
from services.llm.errors import EngineDown
from services.llm.providers.transport.wire import Broken, Lost
from services.runtime.deadline import Deadline
from services.runtime.errors import TooLate
from tests.unit.llm.providers.asking import HELLO, answer, answer_of, refusal, refusing
from tests.unit.llm.providers.simulated_provider import DONE, KEY, SimulatedProvider, end_of, event
from tests.waiting import until


async def test_closing_the_stream_stops_the_provider() -> None:
    provider = SimulatedProvider((event("Hello"), event(".", "stop")), hold=asyncio.Event())
    engine = provider.engine()
    chunks = engine.generate(Request(HELLO), Deadline.never())
    await anext(chunks)
    assert engine.load() == Load(1, 0)
    await chunks.aclose()
    assert (provider.dropped, provider.open) == (1, 0)
    assert engine.load() == Load(0, 0)


@pytest.mark.parametrize("provider", [SimulatedProvider(("{}",)), refusing(401)])
async def test_the_warm_up_opens_a_connection_and_does_not_fail(provider: SimulatedProvider) -> None:
    said: list[str] = []
    await provider.engine().warm_up(said.append)
    assert provider.requests
    assert f"HTTP {provider.status}" in said[0]
    assert KEY not in said[0]


@pytest.mark.paused
async def test_an_idle_connection_is_kept() -> None:
    provider = SimulatedProvider((event("a"), event("b", "stop"), DONE))
    engine = provider.engine()
    keeping = asyncio.create_task(engine.wait_failed())
    await asyncio.sleep(59)
    assert not provider.requests
    await asyncio.sleep(2)
    assert [asked.method for asked in provider.requests] == ["GET"]
    async for _ in engine.generate(Request(HELLO), Deadline.never()):
        pass
    await asyncio.sleep(59)
    assert len(provider.requests) == 2, "a request keeps the connection open, too"
    await asyncio.sleep(2)
    assert [asked.url.rpartition("/")[2] for asked in provider.requests] == ["models", "completions", "models"]
    keeping.cancel()
    await asyncio.wait({keeping})


async def test_a_kept_connection_that_had_died_is_replaced_without_an_error() -> None:
    provider = SimulatedProvider(refusals=[Lost("reset", kept=True)])
    assert end_of(await answer(provider)).reason == FinishReason.STOP
    assert len(provider.requests) == 2


@pytest.mark.parametrize(
    ("refusals", "requests"),
    [
        ([Lost("reset", kept=False)], 1),  # a new connection: the request itself may be what killed it
        ([Lost("reset", kept=True)] * 9, 2),  # on one new connection alone
        ([Broken("timeout")], 1),  # it may be at work
    ],
)
async def test_nothing_else_is_asked_again(refusals: list[Broken], requests: int) -> None:
    provider = SimulatedProvider(refusals=refusals)
    assert isinstance(await refusal(provider), EngineDown)
    assert len(provider.requests) == requests


@pytest.mark.paused
async def test_an_answer_is_over_at_its_last_event_and_its_body_is_read_afterwards() -> None:
    provider = SimulatedProvider((event("Hello", "stop"), DONE, ": the end\n\n"), hold=asyncio.Event())
    engine = provider.engine()
    assert await answer_of(engine, Request(HELLO))
    assert (engine.load(), provider.open) == (Load(0, 0), 1)
    assert provider.hold
    provider.hold.set()
    await until(lambda: provider.open == 0)
    assert provider.dropped == 0  # so the connection is kept


@pytest.mark.paused
@pytest.mark.parametrize("behind", [(": more\n\n" * 10_000,) * 2, (": never",)], ids=["flood", "silence"])
async def test_a_body_that_does_not_end_costs_its_connection(behind: tuple[str, ...]) -> None:
    hold = asyncio.Event() if len(behind) == 1 else None
    provider = SimulatedProvider((event("Hello", "stop"), DONE, *behind), hold=hold)
    await answer(provider)
    await asyncio.sleep(1)
    assert provider.dropped == 1


@pytest.mark.paused
@pytest.mark.parametrize(("ends_after_s", "connections"), [(0.001, 1), (0.1, 2)])
async def test_a_request_waits_for_a_connection_that_is_about_to_be_free(ends_after_s: float, connections: int) -> None:
    provider = SimulatedProvider((event("Hello", "stop"), DONE, ": the end\n\n"), hold=asyncio.Event())
    engine = provider.engine()
    for _ in range(2):
        assert await answer_of(engine, Request(HELLO))
        assert provider.hold
        asyncio.get_running_loop().call_later(ends_after_s, provider.hold.set)
    await engine.close()
    assert provider.most_open == connections


async def test_no_more_answers_are_under_way_than_there_may_be_connections() -> None:
    provider = SimulatedProvider(hold=asyncio.Event())
    engine = provider.engine(own={"max_connections": 2})

    answers = [asyncio.create_task(answer_of(engine, Request(HELLO))) for _ in range(5)]
    await until(lambda: provider.open == 2)
    with pytest.raises(TooLate):
        await anext(engine.generate(Request(HELLO), Deadline.after(0.01)))
    assert provider.hold
    provider.hold.set()
    assert all(await asyncio.gather(*answers))
    assert provider.most_open == 2
