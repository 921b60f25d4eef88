"""The engine for OpenAI-compatible servers, against a simulated one: what is asked, and what comes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from services.llm.engine import (
    Constraint,
    Finish,
    FinishReason,
    Message,
    Original,
    Part,
    Request,
    Sampling,
    Tool,
    ToolCall,
    Usage,
)
from services.llm.errors import RequestRefused
from services.llm.providers import openai
from services.llm.providers.transport.wire import Broken
from services.runtime.deadline import Deadline
from services.runtime.errors import ContextExceeded, InvalidInput, NotSupported
from tests.unit.conftest import Beside
from tests.unit.llm.providers.asking import HELLO, answer, answer_of, chat, refusing
from tests.unit.llm.providers.simulated_provider import DONE, KEY, SimulatedProvider, end_of, event, text_of


async def test_the_end_comes_with_the_provider_s_usage() -> None:
    chunks = await answer(SimulatedProvider())
    assert text_of(chunks) == "Hello."
    assert end_of(chunks) == Finish(FinishReason.STOP, Usage(10, 2, 8))


async def test_only_fields_that_the_request_sets_are_sent() -> None:
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


async def test_a_body_of_many_calls_or_large_tools_is_made_beside_the_event_loop(beside: Beside) -> None:
    made = beside(openai, "to_body")
    calls = tuple(ToolCall(f"call_{number}", "f", "{}") for number in range(100))
    tools = tuple(Tool(f"tool_{number}", parameters=json.dumps({"title": "t" * 7_000})) for number in range(10))
    for messages, offered in (
        (HELLO, ()),
        (HELLO + (Message("assistant", tool_calls=calls),) * 20, ()),
        (HELLO, tools),
    ):
        await answer(SimulatedProvider(), Request(messages, tools=offered))
    assert made == [False, True, True]


PNG = b"\x89PNG\r\n\x1a\n"
MISTRALS = {  # https://api.mistral.ai/v1
    "object": "error",
    "message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options", "include_usage"]}]},
    "type": "invalid_request_error",
}


@pytest.mark.parametrize("own", [None, Original("chat_completions", b'{"messages":[],"stream_options":{"x":1}}')])
async def test_a_provider_that_refuses_to_be_asked_for_the_usage_is_not_asked_again(own: Original | None) -> None:
    provider = SimulatedProvider(refuses={b"include_usage": (422, MISTRALS)})
    engine, request = provider.engine(), Request(HELLO, original=own)
    assert text_of(await answer_of(engine, request)) == "Hello."
    assert text_of(await answer_of(engine, request)) == "Hello."
    kept = {"x": 1} if own else None
    asked = [json.loads(each.content).get("stream_options") for each in provider.requests]
    assert asked == [{**(kept or {}), "include_usage": True}, kept, kept]


async def test_a_request_whose_own_options_are_refused_changes_no_other() -> None:
    provider = SimulatedProvider(refuses={b'"x"': (422, MISTRALS)})
    engine = provider.engine()
    own = Original("chat_completions", b'{"messages":[],"stream_options":{"x":1}}')
    with pytest.raises(RequestRefused):
        await answer_of(engine, Request(HELLO, original=own))
    await answer_of(engine, Request(HELLO))
    assert provider.body["stream_options"] == {"include_usage": True}


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


async def test_headers_of_the_settings_are_stronger_than_a_callers() -> None:
    provider = SimulatedProvider()
    extra = {"OpenAI-Source": "operator", "openai-beta": "a=v1"}
    engine = provider.engine(own={"extra_headers": extra})
    headers = {"openai-source": "caller", "openai-beta": "b=v2", "openai-other": "x"}
    request = Request(HELLO, original=replace(chat(messages=[]), headers=headers))
    assert await answer_of(engine, request)
    sent = provider.requests[-1].headers
    assert [sent[name] for name in headers] == ["operator", "a=v1,b=v2", "x"]


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


async def test_tokens_are_counted_where_the_provider_can() -> None:
    provider = SimulatedProvider(('{"count": 12}',), headers={"content-type": "application/json"})
    assert await provider.engine().count_tokens(HELLO, (), Deadline.never()) == 12
    assert provider.requests[-1].url == "http://provider.test/tokenize"
    with pytest.raises(NotSupported, match="count_tokens"):
        await refusing(404).engine().count_tokens(HELLO, (), Deadline.never())


@pytest.mark.parametrize("count", ["-1", "1e30", "[]", "null"])
async def test_a_count_that_no_conversation_can_have_is_none(count: str) -> None:
    provider = SimulatedProvider((f'{{"count": {count}}}',), headers={"content-type": "application/json"})
    with pytest.raises(NotSupported, match="does not answer with a count"):
        await provider.engine().count_tokens(HELLO, (), Deadline.never())


async def test_a_long_conversation_is_written_beside_the_event_loop_for_its_count(beside: Beside) -> None:
    written = beside(openai, "to_messages")
    provider = SimulatedProvider(('{"count": 12}',), headers={"content-type": "application/json"})
    shown = Message("user", parts=(Part("image", data=PNG + bytes(1_100_000)),))
    for messages in (HELLO, (Message("user", "m" * 1_100_000),), (shown,)):
        assert await provider.engine().count_tokens(messages, (), Deadline.never()) == 12
    assert written == [False, True, True]


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


async def test_the_usage_counts_text_where_the_provider_does_not() -> None:
    chunks = await answer(SimulatedProvider((event("a"), event("b"), event("", "stop"), DONE)))
    assert end_of(chunks).usage == Usage(completion_tokens=2)
