"""OpenAI's Responses: what a provider is asked, in its caller's words and translated, and what it answers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from services.llm.config import LlmSettings
from services.llm.engine import (
    Chunk,
    Constraint,
    Feature,
    Finish,
    FinishReason,
    Message,
    Original,
    Part,
    Request,
    Sampling,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolChoice,
    Usage,
)
from services.llm.errors import EngineBusy, EngineDown
from services.llm.providers.config import OpenAISettings
from services.llm.providers.openai import OpenAIEngine
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput, NotSupported, ServiceError
from tests.recorded_response import (
    CALL,
    RESPONSE,
    THOUGHT,
    Event,
    begun,
    called,
    ended,
    message,
    numbered,
    response,
    said,
    thought,
)
from tests.unit.llm.providers.simulated_provider import SimulatedProvider, end_of, text_of

HELLO = (Message("user", "Hello."),)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
ALONE, BOTH = ("responses",), ("chat_completions", "responses")


@cache
def makers(name: str) -> TypeAdapter[Any]:
    """A type of the maker's own client, whose import takes two seconds."""
    from openai.types import responses

    return TypeAdapter(getattr(responses, name))


def sent(events: Iterable[Event]) -> SimulatedProvider:
    return SimulatedProvider(tuple(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events))


def words(api: str = "responses", untranslated: dict[str, str] | None = None, **body: Any) -> Original:
    return Original(api, json.dumps({"model": "m", **body}).encode(), untranslated=untranslated or {})


async def answer(
    provider: SimulatedProvider, request: Request, apis: tuple[str, ...] = ALONE, **own: Any
) -> list[Chunk]:
    engine = provider.engine(own={"apis": apis, **own})
    return [chunk async for chunk in engine.generate(request, Deadline.never())]


async def asked(request: Request, **own: Any) -> dict[str, Any]:
    provider = sent(RESPONSE)
    await answer(provider, request, **own)
    body = provider.body
    makers("ResponseInputParam").validate_python(body["input"]) if isinstance(body["input"], list) else None
    return body


def test_the_events_of_these_tests_are_those_of_the_makers_client() -> None:
    for event in [*RESPONSE, *numbered([*begun(), *called(), ended([CALL])])]:
        makers("ResponseStreamEvent").validate_python(event, strict=False)


async def test_an_answer_has_thoughts_text_and_the_providers_usage() -> None:
    chunks = await answer(sent(RESPONSE), Request(HELLO))
    assert "".join(chunk.reasoning for chunk in chunks) == "Japan, so Tokyo."
    assert text_of(chunks) == "Tokyo."
    assert end_of(chunks) == Finish(FinishReason.STOP, Usage(9, 12, 4, reasoning_tokens=10))
    assert sum(chunk.tokens for chunk in chunks) == 12
    assert not any(chunk.relayed for chunk in chunks)


async def test_calls_arrive_piece_by_piece_and_end_the_answer() -> None:
    chunks = await answer(sent(numbered([*begun(), *called(), ended([CALL])])), Request(HELLO))
    first, *more = [each for chunk in chunks for each in chunk.tool_calls]
    assert first == ToolCallDelta(0, "call_1", "weather", "")
    assert "".join(each.arguments for each in more) == CALL["arguments"]
    assert end_of(chunks).reason == FinishReason.TOOL_CALLS


@pytest.mark.parametrize(
    ("item", "arguments"),
    [
        ({"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "SELECT 1"}, "SELECT 1"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, "{}"),
        ({"type": "computer_call", "id": "cu_1", "call_id": "c", "action": {"type": "click"}}, ""),
    ],
)
async def test_what_the_caller_has_to_do_is_a_call_also_where_it_comes_in_one_piece(
    item: dict[str, Any], arguments: str
) -> None:
    added = {"type": "response.output_item.added", "output_index": 0, "item": item}
    events = [*begun(), added, {**added, "type": "response.output_item.done"}, ended([item])]
    chunks = await answer(sent(events), Request(HELLO))
    made = [each for chunk in chunks for each in chunk.tool_calls]
    assert (made[0].id, made[0].name) == ("c", item.get("name", item["type"]))
    assert "".join(each.arguments for each in made) == arguments
    assert end_of(chunks).reason == FinishReason.TOOL_CALLS


async def test_what_a_providers_own_tool_does_is_no_call() -> None:
    item = {"id": "ws_1", "type": "web_search_call", "status": "in_progress"}
    events: list[Event] = [
        *begun(),
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws_1"},
        *said("Tokyo.", index=1),
        ended([item, message("Tokyo.")]),
    ]
    own = words(input="?")
    chunks = await answer(sent(events), Request(HELLO, original=own))
    assert not any(chunk.tool_calls for chunk in chunks)
    assert end_of(chunks).reason == FinishReason.STOP
    assert [json.loads(each) for chunk in chunks for each in chunk.relayed] == events


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("max_output_tokens", FinishReason.LENGTH),
        ("content_filter", FinishReason.CONTENT_FILTER),
        ("a_reason_of_tomorrow", FinishReason.LENGTH),
    ],
)
async def test_an_answer_that_is_incomplete_says_why(why: str, reason: FinishReason) -> None:
    last = ended([message("Tok", status="incomplete")], "incomplete", incomplete_details={"reason": why})
    assert end_of(await answer(sent([*begun(), *said("Tok"), last]), Request(HELLO))).reason == reason


async def test_a_refusal_is_text_that_a_filter_has_let_through() -> None:
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    events = [*begun(), {"type": "response.refusal.delta", **at, "delta": "I cannot."}, ended([])]
    chunks = await answer(sent(events), Request(HELLO))
    assert text_of(chunks) == "I cannot."
    assert end_of(chunks).reason == FinishReason.CONTENT_FILTER


async def test_logprobs_come_with_their_text() -> None:
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    top = {"token": "a", "logprob": -0.5, "bytes": [97]}
    delta = {"type": "response.output_text.delta", **at, "delta": "a", "logprobs": [{**top, "top_logprobs": [top]}]}
    chunks = await answer(sent([*begun(), delta, ended([])]), Request(HELLO))
    (told,) = [each for chunk in chunks for each in chunk.logprobs]
    assert (told.token, told.logprob, told.top[0].bytes) == ("a", -0.5, b"a")


async def test_the_events_of_an_answer_are_relayed_to_the_last() -> None:
    provider = sent(RESPONSE)
    own = words(input="Hello.", include=["reasoning.encrypted_content"], stream_options={"include_obfuscation": False})
    chunks = await answer(provider, Request(HELLO, original=own), BOTH)
    assert [json.loads(each) for chunk in chunks for each in chunk.relayed] == list(RESPONSE)
    assert provider.requests[-1].url == "http://provider.test/v1/responses"
    assert provider.body == {
        "model": "big",
        "input": "Hello.",
        "include": ["reasoning.encrypted_content"],
        "stream_options": {"include_obfuscation": False},
        "stream": True,
    }


FAILURES: dict[str, tuple[dict[str, Any], type[ServiceError]]] = {
    "rate": ({"code": "rate_limit_exceeded", "message": "Slow down."}, EngineBusy),
    "server": ({"code": "server_error", "message": "Oh."}, EngineDown),
    "prompt": ({"code": "invalid_prompt", "message": "No."}, InvalidInput),
    "picture": ({"code": "image_too_large", "message": "No."}, InvalidInput),
    "none": ({"code": None, "message": ""}, EngineDown),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_before_the_first_text_is_an_error_of_its_kind(name: str) -> None:
    error, kind = FAILURES[name]
    failed = {"type": "response.failed", "response": response("failed", error=error)}
    for event in (failed, {"type": "error", "param": None, **error}):
        with pytest.raises(kind):
            await answer(sent([*begun(), event]), Request(HELLO))


async def test_a_failure_after_text_interrupts_it() -> None:
    failed = {"type": "response.failed", "response": response("failed", error=FAILURES["server"][0])}
    chunks = await answer(sent([*begun(), *said("Tok")[:3], failed]), Request(HELLO, original=words(input="?")))
    assert end_of(chunks).reason == FinishReason.INTERRUPTED
    assert not any("response.failed" in each for each in chunks[-1].relayed)


@pytest.mark.parametrize(
    "malformed",
    [
        "[]",
        "{}",
        '{"type": "response.output_text.delta"}',
        '{"type": "response.output_item.added", "output_index": 0}',
        '{"type": "response.completed", "response": {"usage": {"input_tokens": "many"}}}',
        '{"type": "response.function_call_arguments.delta", "output_index": 7, "delta": "{"}',
        '{"type": "response.completed',
    ],
)
async def test_a_malformed_event_ends_the_answer_and_is_not_relayed(malformed: str) -> None:
    provider = sent([*begun(), *said("Tok")[:3]])
    provider.pieces += (f"data: {malformed}\n\n", *sent(said("yo.")).pieces)
    chunks = await answer(provider, Request(HELLO, original=words(input="?")))
    assert text_of(chunks) == "Tok"
    assert end_of(chunks).reason == FinishReason.INTERRUPTED
    assert malformed not in [each for chunk in chunks for each in chunk.relayed]


async def test_a_stream_without_an_end_is_interrupted() -> None:
    assert end_of(await answer(sent(RESPONSE[:-1]), Request(HELLO))).reason == FinishReason.INTERRUPTED


@pytest.mark.parametrize(
    ("apis", "api", "path"),
    [
        (BOTH, "chat_completions", "chat/completions"),
        (BOTH, "responses", "responses"),
        (BOTH, "messages", "chat/completions"),
        (ALONE, "chat_completions", "responses"),
        (("responses", "chat_completions"), "messages", "responses"),
        (("chat_completions",), "responses", "chat/completions"),
    ],
)
async def test_a_request_goes_to_its_own_api_where_the_provider_has_it_and_else_to_the_first(
    apis: tuple[str, ...], api: str, path: str
) -> None:
    provider = sent(RESPONSE) if path == "responses" else SimulatedProvider()
    await answer(provider, Request(HELLO, original=words(api, messages=[], input="Hello.")), apis)
    assert provider.requests[-1].url == f"http://provider.test/v1/{path}"


@pytest.mark.parametrize("apis", [BOTH, ALONE])
async def test_a_request_in_nobodys_words_goes_to_the_first(apis: tuple[str, ...]) -> None:
    provider = sent(RESPONSE) if apis == ALONE else SimulatedProvider()
    await answer(provider, Request(HELLO), apis)
    assert provider.requests[-1].url.endswith("/responses") == (apis == ALONE)


@pytest.mark.parametrize(
    ("url", "dialect", "apis"),
    [
        ("", "openai", BOTH),
        ("https://api.openai.com/v1", "openai", BOTH),
        ("https://eu.api.openai.com/v1", "openai", BOTH),
        ("https://api.openai.com.example.org/v1", "openai", BOTH[:1]),
        ("http://127.0.0.1:8000/v1", "openai", BOTH[:1]),
        ("", "openrouter", BOTH[:1]),
        ("https://me.openai.azure.com/openai/v1", "azure", BOTH[:1]),
    ],
)
async def test_a_provider_has_responses_where_it_is_known_to(url: str, dialect: Any, apis: tuple[str, ...]) -> None:
    own = OpenAISettings(base_url=url, dialect=dialect, model="m")  # type: ignore[arg-type]
    engine = OpenAIEngine(LlmSettings(engine="openai", openai=own), SimulatedProvider())
    assert engine.describe().apis == frozenset(apis)
    await engine.close()


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValidationError, match="each API once"):
        OpenAISettings(apis=("responses", "responses"))
    with pytest.raises(ValidationError, match="continues no beginning"):
        OpenAISettings(apis=("responses", "chat_completions"), features=(Feature.PREFIX,))


CONVERSATION = (
    Message("system", "Be brief."),
    Message("user", parts=(Part("text", text="Where?"), Part("image", data=b"\x89PNG\r\n\x1a\n..."))),
    Message("assistant", "A moment.", tool_calls=(ToolCall("c1", "weather", '{"city": "Tokyo"}'),)),
    Message("tool", "21", tool_call_id="c1"),
    Message("system", "In Celsius."),
    Message("user", "And now?"),
)


async def test_a_request_is_translated() -> None:
    request = Request(
        CONVERSATION,
        Sampling(temperature=0.5, top_p=0.9, max_tokens=7, top_logprobs=2),
        Constraint("json_schema", json.dumps(SCHEMA)),
        tools=(Tool("weather", "Tells it.", json.dumps(SCHEMA), strict=True), Tool("clock")),
        tool_choice=ToolChoice("named", "weather"),
        parallel_tool_calls=False,
    )
    picture = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgouLi4=", "detail": "auto"}
    none = {"type": "object", "properties": {}}
    assert await asked(request) == {
        "model": "big",
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Where?"}, picture]},
            {"role": "assistant", "content": "A moment."},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Tokyo"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "21"},
            {"role": "system", "content": "In Celsius."},
            {"role": "user", "content": "And now?"},
        ],
        "temperature": 0.5,
        "top_p": 0.9,
        "top_logprobs": 2,
        "include": ["message.output_text.logprobs"],
        "text": {"format": {"type": "json_schema", "name": "answer", "strict": True, "schema": SCHEMA}},
        "max_output_tokens": 7,
        "tools": [
            {"type": "function", "name": "weather", "description": "Tells it.", "parameters": SCHEMA, "strict": True},
            {"type": "function", "name": "clock", "parameters": none, "strict": False},
        ],
        "tool_choice": {"type": "function", "name": "weather"},
        "parallel_tool_calls": False,
        "store": False,
        "stream": True,
    }
    assert await asked(Request(HELLO)) == {
        "model": "big",
        "input": [{"role": "user", "content": "Hello."}],
        "store": False,
        "stream": True,
    }


@pytest.mark.parametrize(
    "sampling",
    [Sampling(seed=1), Sampling(stop=("x",)), Sampling(frequency_penalty=0.1), Sampling(logit_bias=((1, 1.0),))],
)
async def test_what_responses_do_not_have_is_refused_by_name(sampling: Sampling) -> None:
    with pytest.raises(NotSupported, match=r"^sampling\.(seed|stop|frequency_penalty|logit_bias): "):
        await asked(Request(HELLO, sampling))
    with pytest.raises(InvalidInput, match="response_format"):
        await asked(Request(HELLO, constraint=Constraint("regex", "a+")))


async def test_a_beginning_is_not_gone_on_from() -> None:
    for request in (Request(HELLO, prefix="To"), Request(HELLO, prefix="To", original=words(input="Hello."))):
        with pytest.raises(NotSupported, match="prefix"):
            await asked(request)


async def test_what_a_policy_has_changed_is_translated_and_the_rest_stays() -> None:
    tools = (Tool("weather"),)
    own = words(reasoning={"effort": "low"}, previous_response_id="resp_1", include=["reasoning.encrypted_content"])
    request = Request(CONVERSATION, Sampling(seed=1, top_logprobs=0), tools=tools, original=own)
    body = await asked(request)
    assert body["instructions"] == "Be brief."
    assert [item.get("type", "message") for item in body["input"]] == [
        "message", "message", "function_call", "function_call_output", "message", "message",
    ]  # fmt: skip
    assert body["tools"][0]["name"] == "weather"
    assert body["include"] == ["reasoning.encrypted_content", "message.output_text.logprobs"]
    assert (body["reasoning"], body["previous_response_id"]) == ({"effort": "low"}, "resp_1")
    assert not {"seed", "store"} & body.keys()


async def test_instructions_of_the_input_stay_there() -> None:
    given = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}]
    own = words(input=given, tools=[{"type": "web_search"}])
    messages = (Message("system", "Be brief."), *HELLO)
    assert await asked(Request(messages, original=own)) == {
        "model": "big",
        "input": given,
        "tools": [{"type": "web_search"}],
        "stream": True,
    }


async def test_an_item_that_cannot_be_translated_is_refused_where_it_would_have_to_be() -> None:
    place = {"input[1].content[0]": '{"type":"input_file","file_id":"file_1"}', "input[0].id": '"rs_1"'}
    given = [THOUGHT, {"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]}]
    assert await asked(Request(HELLO, original=words(untranslated=place, input=given)))
    with pytest.raises(InvalidInput, match=r"^input\[1\]\.content\[0\]: none of its kind where the gateway changes"):
        await asked(Request(HELLO, original=words(untranslated=place)))


async def test_a_cap_holds_for_what_is_asked_in_the_callers_own_words() -> None:
    provider = sent(RESPONSE)
    engine = OpenAIEngine(
        LlmSettings(engine="openai", max_tokens_cap=512, openai=OpenAISettings(model="m", apis=BOTH)),  # type: ignore[arg-type]
        provider,
    )
    for own, most in (({"max_output_tokens": 3_000}, 512), ({"max_output_tokens": 7}, 7), ({}, 512)):
        request = Request(HELLO, original=words(input="Hello.", **own))
        assert [chunk async for chunk in engine.generate(request, Deadline.never())]
        assert provider.body["max_output_tokens"] == most
        assert not {"max_tokens", "max_completion_tokens"} & provider.body.keys()


async def test_thoughts_that_are_only_given_encrypted_begin_an_answer() -> None:
    hidden = [each for each in thought() if "summary" not in each["type"]]
    own = words(input="?")
    first, *_ = await answer(
        sent([*begun(), *hidden, *said("Tokyo.", index=1), ended([])]), Request(HELLO, original=own)
    )
    assert [json.loads(each)["type"] for each in first.relayed][-1] == "response.output_item.done"
    assert not first.text
