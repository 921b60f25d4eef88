"""The engine for OpenAI-compatible servers, against a simulated one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from services.llm.engine import Chunk, Constraint, Finish, FinishReason, Load, Message, Request, Sampling, Usage
from services.llm.errors import EngineBusy, EngineDown, NotSupported, ProviderRefused
from services.llm.transport.wire import Broken
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput, ServiceError, TooLate
from tests.unit.llm.simulated_provider import DONE, KEY, SimulatedProvider, event

HELLO = (Message("system", "Be brief."), Message("user", "Hello."))


async def answer(provider: SimulatedProvider, request: Request | None = None) -> list[Chunk]:
    return [chunk async for chunk in provider.engine().generate(request or Request(HELLO), Deadline.never())]


async def refusal(provider: SimulatedProvider, deadline: Deadline | None = None) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        async for _ in provider.engine().generate(Request(HELLO), deadline or Deadline.never()):
            pass
    assert KEY not in str(caught.value.message) + str(caught.value.metadata)
    return caught.value


def refusing(status: int, body: object = "", **headers: str) -> SimulatedProvider:
    return SimulatedProvider((json.dumps(body),), status, headers)


async def test_the_end_comes_with_the_provider_s_usage() -> None:
    *text, last = await answer(SimulatedProvider())
    assert "".join(chunk.text for chunk in text) + last.text == "Hello."
    assert last.finish == Finish(FinishReason.STOP, Usage(10, 2, 8))


async def test_what_the_request_sets_is_sent_and_nothing_else() -> None:
    provider = SimulatedProvider()
    sampling = Sampling(temperature=0.0, top_p=0.5, max_tokens=7, stop=("\n",), seed=3)
    await answer(provider, Request(HELLO, sampling, cache_salt="ours alone"))
    assert provider.body == {
        "model": "big",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 7,
        "temperature": 0.0,
        "top_p": 0.5,
        "stop": ["\n"],
        "seed": 3,
    }
    await answer(provider)
    assert provider.body.keys() == {"model", "messages", "stream", "stream_options", "max_tokens"}
    assert provider.requests[-1].headers["authorization"] == f"Bearer {KEY}"


async def test_a_provider_that_can_is_asked_to_go_on_from_the_beginning_of_an_answer() -> None:
    provider = SimulatedProvider()
    engine = provider.engine(continues=True)
    assert engine.describe().continues
    request = Request(HELLO, prefix="Good")
    text = "".join([chunk.text async for chunk in engine.generate(request, Deadline.never())])
    assert text == "Hello."  # what is new, and nothing else
    assert provider.body["messages"][-1] == {"role": "assistant", "content": "Good"}
    assert (provider.body["add_generation_prompt"], provider.body["continue_final_message"]) == (False, True)


async def test_a_provider_that_may_not_be_able_to_is_not_asked_to_go_on() -> None:
    provider = SimulatedProvider()
    assert not provider.engine().describe().continues
    with pytest.raises(NotSupported, match="prefix"):
        await answer(provider, Request(HELLO, prefix="Good"))
    assert provider.requests == []


async def test_max_tokens_is_capped() -> None:
    provider = SimulatedProvider()
    await answer(provider, Request(HELLO, Sampling(max_tokens=1_000_000)))
    assert provider.body["max_tokens"] == 512


@pytest.mark.parametrize(
    ("constraint", "sent"),
    [
        (Constraint("json_object"), {"type": "json_object"}),
        (
            Constraint("json_schema", '{"type": "object"}'),
            {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": {"type": "object"}}},
        ),
    ],
)
async def test_a_constraint_is_sent_as_response_format(constraint: Constraint, sent: dict[str, Any]) -> None:
    provider = SimulatedProvider()
    await answer(provider, Request(HELLO, constraint=constraint))
    assert provider.body["response_format"] == sent


@pytest.mark.parametrize("constraint", [Constraint("regex", "[0-9]"), Constraint("json_schema", "{")])
async def test_a_constraint_that_cannot_be_sent_is_refused(constraint: Constraint) -> None:
    with pytest.raises(InvalidInput, match="response_format"):
        await answer(SimulatedProvider(), Request(HELLO, constraint=constraint))


@pytest.mark.parametrize(
    "pieces",
    [
        (event("Hello"),),  # ended without a reason
        (event("Hello"), DONE),
        (event("Hello"), Broken("reset")),
        (event("Hello"), 'data: {"error": {"message": "overloaded"}}\n\n'),
        (event("Hello"), "data: {half of a me"),
        (event("Hello"), "data: []\n\n"),
        (event("Hello"), event(finish_reason="content_filter"), DONE),
        (event("Hello"), 'data: {"choices": [7]}\n\n', event("never read")),
    ],
)
async def test_a_stream_that_breaks_off_is_never_taken_for_a_whole_answer(pieces: tuple[str | Broken, ...]) -> None:
    chunks = await answer(SimulatedProvider(pieces))
    last = chunks[-1]
    assert "".join(chunk.text for chunk in chunks) == "Hello"
    assert last.finish is not None
    assert last.finish.reason == FinishReason.INTERRUPTED
    assert last.finish.usage.completion_tokens == 1


async def test_a_reason_makes_an_answer_whole_even_without_done() -> None:
    *_, last = await answer(SimulatedProvider((event("Hello"), event(".", "length"))))
    assert last.finish is not None
    assert last.finish.reason == FinishReason.LENGTH


@pytest.mark.parametrize(
    ("provider", "error"),
    [
        (SimulatedProvider(()), EngineDown),
        (SimulatedProvider(refusals=[Broken("refused")]), EngineDown),
        (SimulatedProvider((Broken("reset"),)), EngineDown),
        (SimulatedProvider(("<html>",), headers={"content-type": "text/html"}), EngineDown),
        (refusing(500), EngineDown),
        (refusing(503), EngineDown),
        (refusing(429), EngineBusy),
        (refusing(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}), ProviderRefused),
        (refusing(403), ProviderRefused),
        (refusing(404), ProviderRefused),
        (refusing(400, {"error": {"message": f"bad {KEY}", "param": "stop"}}), InvalidInput),
        (refusing(422, ["unexpected"]), InvalidInput),
        (SimulatedProvider(('data: {"error": {"message": "no such type", "code": 400}}\n\n',)), InvalidInput),
        (SimulatedProvider(('data: {"error": {"message": "overloaded", "code": "busy"}}\n\n',)), EngineDown),
        (SimulatedProvider(('data: {"error": "overloaded"}\n\n',)), EngineDown),
    ],
)
async def test_a_refusal_has_a_type_and_no_secret(provider: SimulatedProvider, error: type[ServiceError]) -> None:
    assert type(await refusal(provider)) is error


async def test_a_provider_that_limits_our_rate_says_when_to_come_back() -> None:
    assert (await refusal(refusing(429, **{"retry-after": "2.5"}))).retry_delay_s == 2.5


async def test_a_refused_parameter_is_named_with_what_the_provider_said() -> None:
    error = await refusal(refusing(400, {"error": {"message": "at most 4\nstops", "param": "stop"}}))
    assert error.metadata["field"] == "stop"
    assert "at most 4 stops" in error.message


async def test_silence_until_the_deadline_is_too_late() -> None:
    assert isinstance(await refusal(SimulatedProvider(silent=True), Deadline.after(0.01)), TooLate)


async def test_closing_the_stream_stops_the_provider() -> None:
    provider = SimulatedProvider((event("Hello"), event(".", "stop")), hold=asyncio.Event())
    engine = provider.engine()
    chunks = engine.generate(Request(HELLO), Deadline.never())
    await anext(chunks)
    assert engine.load() == Load(1, 0)
    await chunks.aclose()
    assert (provider.dropped, provider.open) == (1, 0)
    assert engine.load() == Load(0, 0)


async def test_tokens_are_counted_where_the_provider_can() -> None:
    provider = SimulatedProvider(('{"count": 12}',), headers={"content-type": "application/json"})
    assert await provider.engine().count_tokens(HELLO, Deadline.never()) == 12
    assert provider.requests[-1].url == "http://provider.test/tokenize"
    with pytest.raises(NotSupported, match="count_tokens"):
        await refusing(404).engine().count_tokens(HELLO, Deadline.never())


@pytest.mark.parametrize("provider", [SimulatedProvider(("{}",)), refusing(401)])
async def test_the_warm_up_opens_a_connection_and_does_not_fail(provider: SimulatedProvider) -> None:
    said: list[str] = []
    await provider.engine().warm_up(said.append)
    assert provider.requests
    assert f"HTTP {provider.status}" in said[0]
    assert KEY not in said[0]


async def test_the_usage_counts_text_where_the_provider_does_not() -> None:
    *_, last = await answer(SimulatedProvider((event("a"), event("b"), event("", "stop"), DONE)))
    assert last.finish is not None
    assert last.finish.usage == Usage(completion_tokens=2)
