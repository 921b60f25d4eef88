"""OpenAI-compatible servers that refuse, break off, stay silent or send too much."""

from __future__ import annotations

import asyncio

import pytest

from hedgerow.channel import MAX_MESSAGE_BYTES
from services.llm.engine import FinishReason, Request
from services.llm.errors import AnswerTooLarge, EngineDown, ProviderRefused, RequestRefused
from services.llm.providers.transport.wire import Broken
from services.llm.translate import to_response
from services.runtime.deadline import Deadline
from services.runtime.errors import ServiceError, TooLate
from tests.unit.llm.providers.asking import HELLO, answer, answer_of, chat, refusal, refusing
from tests.unit.llm.providers.simulated_provider import DONE, KEY, SimulatedProvider, delta, end_of, event, text_of


@pytest.mark.parametrize("said", ["images", "content"])
async def test_large_events_travel_in_messages_that_the_gateway_takes(said: str) -> None:
    large = [delta(**{said: "x" * 900_000}) for _ in range(6)]
    provider = SimulatedProvider(("".join([*large, event("", "stop"), *large, DONE]),))
    own = Request(HELLO, original=chat(messages=[]))
    chunks = await answer(provider, own)
    assert sum(len(chunk.relayed) for chunk in chunks) == 13
    assert end_of(chunks)
    sizes = [to_response(chunk).ByteSize() for chunk in chunks[: -1 if said == "content" else None]]
    assert max(sizes) < MAX_MESSAGE_BYTES


async def test_an_answer_that_breaks_off_after_events_alone_is_interrupted() -> None:
    large = [delta(images="x" * 900_000) for _ in range(2)]
    own = Request(HELLO, original=chat(messages=[]))
    provider = SimulatedProvider((*large, Broken("reset")))
    chunks = await answer(provider, own)
    assert end_of(chunks).reason == FinishReason.INTERRUPTED


@pytest.mark.parametrize(
    "pieces",
    [
        (event("Hello"),),  # ended without a reason
        (event("Hello"), DONE),
        (event("Hello"), Broken("reset")),
        (event("Hello"), 'data: {"error": {"message": "overloaded"}}\n\n'),
        (event("Hello"), "data: {half of a me"),
        (event("Hello"), "data: []\n\n"),
        (event("Hello"), 'data: {"choices": [7]}\n\n', event("never read")),
    ],
)
async def test_a_stream_that_breaks_off_is_never_taken_for_a_whole_answer(pieces: tuple[str | Broken, ...]) -> None:
    chunks = await answer(SimulatedProvider(pieces))
    assert text_of(chunks) == "Hello"
    assert (end_of(chunks).reason, end_of(chunks).usage.completion_tokens) == (FinishReason.INTERRUPTED, 1)


async def test_a_reason_makes_an_answer_whole_even_without_done() -> None:
    chunks = await answer(SimulatedProvider((event("Hello"), event(".", "length"))))
    assert end_of(chunks).reason == FinishReason.LENGTH


@pytest.mark.parametrize(
    ("provider", "error"),
    [
        (SimulatedProvider(()), EngineDown),
        (SimulatedProvider(refusals=[Broken("refused")]), EngineDown),
        (SimulatedProvider((Broken("reset"),)), EngineDown),
        (SimulatedProvider(("<html>",), headers={"content-type": "text/html"}), EngineDown),
        (refusing(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}), ProviderRefused),
        (refusing(400, {"error": {"message": f"bad {KEY}", "param": "stop"}}), RequestRefused),
        (refusing(422, ["unexpected"]), RequestRefused),
        (SimulatedProvider(('data: {"error": {"message": "no such type", "code": 400}}\n\n',)), RequestRefused),
        (SimulatedProvider(('data: {"error": {"message": "overloaded", "code": "busy"}}\n\n',)), EngineDown),
        (SimulatedProvider(('data: {"error": "overloaded"}\n\n',)), EngineDown),
    ],
)
async def test_a_refusal_has_a_type_and_no_secret(provider: SimulatedProvider, error: type[ServiceError]) -> None:
    assert type(await refusal(provider)) is error


@pytest.mark.parametrize(("status", "retryable"), [(429, False), (503, True)])
async def test_a_provider_that_limits_our_rate_or_is_overloaded_says_when_to_come_back(
    status: int, retryable: bool
) -> None:
    error = await refusal(refusing(status, **{"retry-after": "2.5"}))
    assert (error.retryable, error.retry_delay_s) == (retryable, 2.5)


async def test_a_refused_parameter_is_named_with_what_the_provider_said() -> None:
    error = await refusal(refusing(400, {"error": {"message": "at most 4\nstops", "param": "stop"}}))
    assert error.metadata["field"] == "stop"
    assert "at most 4 stops" in error.message


async def test_silence_until_the_deadline_is_too_late() -> None:
    assert isinstance(await refusal(SimulatedProvider(silent=True), Deadline.after(0.01)), TooLate)


async def test_an_answer_that_the_deadline_cuts_is_too_late_and_not_interrupted() -> None:
    provider = SimulatedProvider((event("Hello"), event("."), event("", "stop")), hold=asyncio.Event())
    chunks = provider.engine().generate(Request(HELLO), Deadline.after(0.1))
    with pytest.raises(TooLate):
        [chunk async for chunk in chunks]


async def test_a_redirect_is_not_followed() -> None:
    provider = refusing(302, location="http://elsewhere.test/")
    assert isinstance(await refusal(provider), EngineDown)
    assert len(provider.requests) == 1


async def test_an_event_that_is_too_large_is_paid_once_and_is_no_failure_of_the_provider() -> None:
    engine = SimulatedProvider((event("x" * 2_000),)).engine(own={"max_event_bytes": 1_024})
    with pytest.raises(AnswerTooLarge, match=r"at most 1024 bytes: ask for less") as refused:
        await answer_of(engine, Request(HELLO))
    assert not refused.value.retryable
    assert engine.load().outage is None


@pytest.mark.parametrize(
    ("pieces", "own", "error"),
    [
        (("data: " + "x" * 2_000,), {"max_event_bytes": 1_024}, AnswerTooLarge),
        ((event("word ") * 5, ": comments\n\n" * 1_000), {"max_answer_bytes": 4_096}, EngineDown),
    ],
    ids=["an event", "an answer"],
)
async def test_a_provider_sends_no_more_than_it_may(
    pieces: tuple[str, ...], own: dict[str, int], error: type[Exception]
) -> None:
    provider = SimulatedProvider((event("Hello"), *pieces, event("!"), DONE))
    chunks = await answer_of(provider.engine(own=own), Request(HELLO))
    assert end_of(chunks).reason == FinishReason.INTERRUPTED
    assert (provider.dropped, provider.open) == (1, 0)
    with pytest.raises(error, match=r"(more than|at most) \d+ bytes"):
        await anext(SimulatedProvider(pieces[-1:]).engine(own=own).generate(Request(HELLO), Deadline.never()))
