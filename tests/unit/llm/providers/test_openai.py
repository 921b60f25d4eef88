"""The engine for OpenAI-compatible servers, against a simulated one."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from hedgerow.channel import MAX_MESSAGE_BYTES
from services.llm.engine import (
    Chunk,
    Constraint,
    Finish,
    FinishReason,
    Load,
    Message,
    Original,
    Request,
    Sampling,
    Usage,
)
from services.llm.errors import EngineBusy, EngineDown, ProviderRefused, RequestRefused
from services.llm.providers.openai import OpenAIEngine
from services.llm.providers.transport.wire import Broken, Lost
from services.llm.translate import to_response
from services.runtime.deadline import Deadline
from services.runtime.errors import ContextExceeded, InvalidInput, NotSupported, ServiceError, TooLate
from tests.clock import on_paused_loop
from tests.unit.llm.providers.simulated_provider import DONE, KEY, SimulatedProvider, delta, end_of, event, text_of
from tests.waiting import until

HELLO = (Message("system", "Be brief."), Message("user", "Hello."))


async def answer(provider: SimulatedProvider, request: Request | None = None) -> list[Chunk]:
    return [chunk async for chunk in provider.engine().generate(request or Request(HELLO), Deadline.never())]


async def answer_of(engine: OpenAIEngine, request: Request) -> list[Chunk]:
    return [chunk async for chunk in engine.generate(request, Deadline.never())]


async def refusal(provider: SimulatedProvider, deadline: Deadline | None = None) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        async for _ in provider.engine().generate(Request(HELLO), deadline or Deadline.never()):
            pass
    assert KEY not in str(caught.value.message) + str(caught.value.metadata)
    return caught.value


def chat(**body: Any) -> Original:
    """A request in its caller's own words."""
    return Original("chat_completions", json.dumps(body).encode())


def refusing(status: int, body: object = "", **headers: str) -> SimulatedProvider:
    return SimulatedProvider((json.dumps(body),), status, headers)


async def test_the_end_comes_with_the_provider_s_usage() -> None:
    chunks = await answer(SimulatedProvider())
    assert text_of(chunks) == "Hello."
    assert end_of(chunks) == Finish(FinishReason.STOP, Usage(10, 2, 8))


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
    assert provider.body.keys() == {"model", "messages", "stream", "stream_options"}
    assert provider.requests[-1].headers["authorization"] == f"Bearer {KEY}"


async def test_a_provider_that_can_is_asked_to_go_on_from_the_beginning_of_an_answer() -> None:
    provider = SimulatedProvider()
    engine = provider.engine(continues=True)
    assert engine.describe().continues
    request = Request(HELLO, prefix="Good")
    assert text_of(await answer_of(engine, request)) == "Hello."  # what is new, and nothing else
    assert provider.body["messages"][-1] == {"role": "assistant", "content": "Good"}
    assert (provider.body["add_generation_prompt"], provider.body["continue_final_message"]) == (False, True)


async def test_a_provider_that_may_not_be_able_to_is_not_asked_to_go_on() -> None:
    provider = SimulatedProvider()
    assert not provider.engine().describe().continues
    with pytest.raises(NotSupported, match="prefix"):
        await answer(provider, Request(HELLO, prefix="Good"))
    assert provider.requests == []


LIMITS = ("max_tokens", "max_completion_tokens")
CAP, USUAL = {"max_tokens_cap": 512}, {"default_max_tokens": 256}
MOST = Request(HELLO, Sampling(max_tokens=1_000_000))


def own_words(most_tokens: int = 0, **limits: object) -> Request:
    return Request(HELLO, original=chat(messages=[], **limits), most_tokens=most_tokens)


@pytest.mark.parametrize(
    ("settings", "request_", "sent"),
    [
        ({}, MOST, [1_000_000]),
        (CAP, MOST, [512]),
        (CAP, Request(HELLO), [512]),
        ({}, own_words(9), [9]),
        ({}, own_words(9, max_tokens=50), [9]),
        ({"max_tokens_cap": 5}, own_words(9, max_tokens=50), [5]),
        (CAP, own_words(max_completion_tokens=3_000), [512]),
        (CAP, own_words(max_completion_tokens=7), [7]),
        (CAP, own_words(), [512]),
        (CAP, own_words(max_completion_tokens=3_000.0), [512]),
        (CAP, own_words(max_completion_tokens=7.0), [7]),
        (CAP, own_words(max_completion_tokens=7, max_tokens=3_000.0), [512, 7]),
        (CAP, own_words(max_completion_tokens=7, max_tokens="3000"), [512, 7]),
        (CAP, own_words(max_completion_tokens=7, max_tokens=None), [None, 7]),
        (USUAL, own_words(), [256]),
        (USUAL, own_words(max_tokens=None), [256]),
        (USUAL, own_words(max_tokens=3_000), [3_000]),
    ],
)
async def test_the_limit_of_an_answer_is_what_is_asked_at_most_the_cap_and_the_usual_one_where_nothing_is(
    settings: dict[str, int], request_: Request, sent: list[int | None]
) -> None:
    provider = SimulatedProvider()
    assert await answer_of(provider.engine(**settings), request_)
    assert [provider.body[name] for name in LIMITS if name in provider.body] == sent


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


async def test_headers_of_the_settings_are_stronger_than_a_callers() -> None:
    provider = SimulatedProvider()
    extra = {"OpenAI-Source": "operator", "openai-beta": "a=v1"}
    engine = provider.engine(own={"extra_headers": extra})
    told = {"openai-source": "caller", "openai-beta": "b=v2", "openai-other": "x"}
    request = Request(HELLO, original=replace(chat(messages=[]), headers=told))
    assert await answer_of(engine, request)
    sent = provider.requests[-1].headers
    assert [sent[name] for name in told] == ["operator", "a=v1,b=v2", "x"]


async def test_a_cap_holds_for_the_rest_of_an_answer_in_the_callers_own_words() -> None:
    provider = SimulatedProvider()
    engine = provider.engine(continues=True, max_tokens_cap=512)
    own = chat(messages=[{"role": "user", "content": "Hello."}], max_tokens=3_000, min_tokens=100)
    request = Request(HELLO, Sampling(max_tokens=2_940, min_tokens=40), prefix="Good", original=own)
    assert await answer_of(engine, request)
    assert (provider.body["max_tokens"], provider.body["min_tokens"]) == (512, 40)
    assert provider.body["messages"][-1] == {"role": "assistant", "content": "Good"}


@pytest.mark.parametrize(
    ("constraint", "field", "sent"),
    [
        (Constraint("json_object"), "response_format", {"type": "json_object"}),
        (
            Constraint("json_schema", '{"type": "object"}'),
            "response_format",
            {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": {"type": "object"}}},
        ),
        (Constraint("choice", '["yes", "no"]'), "structured_outputs", {"choice": ["yes", "no"]}),
        (Constraint("grammar", "start: A"), "structured_outputs", {"grammar": "start: A"}),
    ],
)
async def test_a_constraint_is_sent_as_response_format_or_in_the_field_of_vllms_servers(
    constraint: Constraint, field: str, sent: dict[str, Any]
) -> None:
    provider = SimulatedProvider()
    await answer(provider, Request(HELLO, constraint=constraint))
    assert {
        name: provider.body[name] for name in ("response_format", "structured_outputs") if name in provider.body
    } == {field: sent}


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
        (refusing(500), EngineDown),
        (refusing(503), EngineDown),
        (refusing(429), EngineBusy),
        (refusing(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}), ProviderRefused),
        (refusing(403), ProviderRefused),
        (refusing(404), ProviderRefused),
        (refusing(400, {"error": {"message": f"bad {KEY}", "param": "stop"}}), RequestRefused),
        (refusing(422, ["unexpected"]), RequestRefused),
        (SimulatedProvider(('data: {"error": {"message": "no such type", "code": 400}}\n\n',)), RequestRefused),
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


async def test_an_answer_that_the_deadline_cuts_is_too_late_and_not_interrupted() -> None:
    provider = SimulatedProvider((event("Hello"), event("."), event("", "stop")), hold=asyncio.Event())
    chunks = provider.engine().generate(Request(HELLO), Deadline.after(0.1))
    with pytest.raises(TooLate):
        [chunk async for chunk in chunks]


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
    assert await provider.engine().count_tokens(HELLO, (), Deadline.never()) == 12
    assert provider.requests[-1].url == "http://provider.test/tokenize"
    with pytest.raises(NotSupported, match="count_tokens"):
        await refusing(404).engine().count_tokens(HELLO, (), Deadline.never())


@pytest.mark.parametrize("provider", [SimulatedProvider(("{}",)), refusing(401)])
async def test_the_warm_up_opens_a_connection_and_does_not_fail(provider: SimulatedProvider) -> None:
    said: list[str] = []
    await provider.engine().warm_up(said.append)
    assert provider.requests
    assert f"HTTP {provider.status}" in said[0]
    assert KEY not in said[0]


LISTED = json.dumps({"data": [{"id": "big", "max_model_len": 4_096}, {"id": "small", "max_model_len": 1}]})


@pytest.mark.parametrize(
    ("provider", "own", "known"),
    [
        (SimulatedProvider((LISTED[:30], LISTED[30:])), {}, 4_096),
        (SimulatedProvider((LISTED[:30], LISTED[30:])), {"context_tokens": 1_024}, 1_024),
        (SimulatedProvider(("{}",)), {}, 0),
        (refusing(401), {}, 0),
        (SimulatedProvider((LISTED[:30], Broken("gone"))), {}, 0),
    ],
    ids=["listed", "set", "not listed", "refused", "broken off"],
)
async def test_the_servers_list_says_how_much_the_context_holds_unless_the_settings_do(
    provider: SimulatedProvider, own: dict[str, int], known: int
) -> None:
    engine = provider.engine(own=own)
    await engine.warm_up(lambda _: None)
    assert engine.describe().context_tokens == known


async def test_more_words_than_the_context_has_tokens_are_not_sent() -> None:
    provider = SimulatedProvider()
    engine = provider.engine(own={"context_tokens": 64})
    with pytest.raises(ContextExceeded):
        await answer_of(engine, Request((Message("user", "a " * 65),)))
    assert not provider.requests
    assert await answer_of(engine, Request((Message("user", "a " * 64),)))


@pytest.mark.parametrize(
    ("own", "field"),
    [
        ({}, "max_tokens"),
        ({"base_url": "https://api.openai.com/v1"}, "max_completion_tokens"),
        ({"base_url": "https://eu.api.openai.com/v1"}, "max_completion_tokens"),
        ({"base_url": "https://api.openai.com/v1", "max_tokens_field": "max_tokens"}, "max_tokens"),
        ({"dialect": "azure", "model": "o4-mini"}, "max_completion_tokens"),
        ({"dialect": "azure", "model": "gpt-5.1"}, "max_completion_tokens"),
        ({"dialect": "azure", "model": "gpt-4o"}, "max_tokens"),
        ({"dialect": "openrouter", "model": "openai/gpt-5"}, "max_tokens"),
    ],
)
async def test_the_limit_of_an_answer_goes_by_the_name_that_the_provider_takes(own: dict[str, str], field: str) -> None:
    provider = SimulatedProvider()
    await answer_of(provider.engine(own={"apis": ("chat_completions",), **own}), Request(HELLO, Sampling(max_tokens=7)))
    assert {name for name in provider.body if "tokens" in name} == {field}


@pytest.mark.paused
async def test_a_connection_is_kept_where_nobody_asks_for_long() -> None:
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
    assert len(provider.requests) == 2, "what was asked keeps it as well"
    await asyncio.sleep(2)
    assert [asked.url.rpartition("/")[2] for asked in provider.requests] == ["models", "completions", "models"]
    keeping.cancel()
    await asyncio.wait({keeping})


async def test_the_usage_counts_text_where_the_provider_does_not() -> None:
    chunks = await answer(SimulatedProvider((event("a"), event("b"), event("", "stop"), DONE)))
    assert end_of(chunks).usage == Usage(completion_tokens=2)


async def test_a_redirect_is_not_followed() -> None:
    provider = refusing(302, location="http://elsewhere.test/")
    assert isinstance(await refusal(provider), EngineDown)
    assert len(provider.requests) == 1


async def test_a_kept_connection_that_had_died_is_replaced_and_nobody_hears_of_it() -> None:
    provider = SimulatedProvider(refusals=[Lost("reset", kept=True)] * 2)
    assert end_of(await answer(provider)).reason == FinishReason.STOP
    assert len(provider.requests) == 3


@pytest.mark.parametrize(
    ("refusals", "requests"),
    [
        ([Lost("reset", kept=False)], 1),  # a new connection: the request itself may be what killed it
        ([Lost("reset", kept=True)] * 9, 3),  # no more connections were kept than these
        ([Broken("timeout")], 1),  # it may be at work
    ],
)
async def test_nothing_else_is_asked_again(refusals: list[Broken], requests: int) -> None:
    provider = SimulatedProvider(refusals=refusals)
    assert isinstance(await refusal(provider), EngineDown)
    assert len(provider.requests) == requests


@pytest.mark.paused
async def test_an_answer_is_over_when_its_end_is_told_and_its_body_is_read_behind() -> None:
    provider = SimulatedProvider((event("Hello", "stop"), DONE, ": the end\n\n"), hold=asyncio.Event())
    engine = provider.engine()
    assert await answer_of(engine, Request(HELLO))
    assert (engine.load(), provider.open) == (Load(0, 0), 1)
    assert provider.hold
    provider.hold.set()
    await until(lambda: provider.open == 0)
    assert provider.dropped == 0  # so the connection is kept


@pytest.mark.parametrize("behind", [(": more\n\n" * 10_000,) * 2, (": never",)], ids=["flood", "silence"])
def test_a_body_that_does_not_end_costs_its_connection(behind: tuple[str, ...]) -> None:
    async def leave() -> int:
        hold = asyncio.Event() if len(behind) == 1 else None
        provider = SimulatedProvider((event("Hello", "stop"), DONE, *behind), hold=hold)
        await answer(provider)
        await asyncio.sleep(1)
        return provider.dropped

    assert on_paused_loop(leave()) == 1


@pytest.mark.parametrize(("ends_after_s", "connections"), [(0.001, 1), (0.1, 2)])
def test_a_request_waits_for_a_connection_that_is_about_to_be_free(ends_after_s: float, connections: int) -> None:
    async def ask_twice() -> int:
        provider = SimulatedProvider((event("Hello", "stop"), DONE, ": the end\n\n"), hold=asyncio.Event())
        engine = provider.engine()
        for _ in range(2):
            assert await answer_of(engine, Request(HELLO))
            assert provider.hold
            asyncio.get_running_loop().call_later(ends_after_s, provider.hold.set)
        await engine.close()
        return provider.most_open

    assert on_paused_loop(ask_twice()) == connections


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


@pytest.mark.parametrize(
    ("pieces", "own"),
    [
        (("data: " + "x" * 2_000,), {"max_event_bytes": 1_024}),
        ((event("word ") * 5, ": comments\n\n" * 1_000), {"max_answer_bytes": 4_096}),
    ],
    ids=["an event", "an answer"],
)
async def test_a_provider_sends_no_more_than_it_may(pieces: tuple[str, ...], own: dict[str, int]) -> None:
    provider = SimulatedProvider((event("Hello"), *pieces, event("!"), DONE))
    chunks = await answer_of(provider.engine(own=own), Request(HELLO))
    assert end_of(chunks).reason == FinishReason.INTERRUPTED
    assert (provider.dropped, provider.open) == (1, 0)
    with pytest.raises(EngineDown, match=r"more than \d+ bytes"):
        await anext(SimulatedProvider(pieces[-1:]).engine(own=own).generate(Request(HELLO), Deadline.never()))
