"""The engine for Anthropic's Messages API, against a simulated one; the API's own types check what passes."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from services.llm.config import LlmSettings
from services.llm.engine import (
    Chunk,
    Constraint,
    Feature,
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
from services.llm.errors import EngineBusy, EngineDown, ProviderRefused
from services.llm.providers.anthropic import AnthropicEngine
from services.llm.providers.config import AnthropicSettings
from services.llm.providers.transport.wire import Broken
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput, NotSupported, ServiceError
from tests.unit.llm.providers.simulated_provider import KEY, SimulatedProvider, end_of, text_of

HELLO = (Message("user", "Hello."),)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER, CLOCK = Tool("weather", "Tells it.", json.dumps(SCHEMA), strict=True), Tool("clock")
USAGE = {"input_tokens": 3, "cache_read_input_tokens": 8, "cache_creation_input_tokens": 1, "output_tokens": 1}


@cache
def maker_s(name: str) -> TypeAdapter[Any]:
    """A type of the maker's own client, whose import takes two seconds: of every worker's if it were above."""
    from anthropic import types

    return TypeAdapter(getattr(types, name))


def event(type: str, **fields: Any) -> str:
    message = {"type": type, **fields}
    if type not in ("ping", "error"):
        maker_s("RawMessageStreamEvent").validate_python(message)
    return f"event: {type}\ndata: {json.dumps(message)}\n\n"


def started(**usage: int) -> str:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "big", "content": []}
    ends = {"stop_reason": None, "stop_sequence": None}
    return event("message_start", message={**message, **ends, "usage": {**USAGE, **usage}})


def block(index: int, kind: dict[str, Any], *deltas: dict[str, Any]) -> list[str]:
    return [
        event("content_block_start", index=index, content_block=kind),
        *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
        event("content_block_stop", index=index),
    ]


def text(*pieces: str, index: int = 0) -> list[str]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces))


def called(index: int, id: str, name: str, *pieces: str) -> list[str]:
    deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
    return block(index, {"type": "tool_use", "id": id, "name": name, "input": {}}, *deltas)


def ended(reason: str = "end_turn", **usage: Any) -> list[str]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [
        event("message_delta", delta=delta, usage={"output_tokens": 12, **usage}),
        event("message_stop"),
    ]


def provider(*pieces: str | Broken, **fields: Any) -> SimulatedProvider:
    return SimulatedProvider((started(), *pieces), **fields)


def engine(simulated: SimulatedProvider, **own: Any) -> AnthropicEngine:
    anthropic = AnthropicSettings.model_validate(
        {"base_url": "http://provider.test/v1", "model": "big", "api_key": KEY, **own}
    )
    return AnthropicEngine(LlmSettings(engine="anthropic", anthropic=anthropic), simulated)


async def answer(simulated: SimulatedProvider, request: Request | None = None, **own: Any) -> list[Chunk]:
    request = request or Request(HELLO)
    return [chunk async for chunk in engine(simulated, **own).generate(request, Deadline.never())]


async def body(request: Request, **own: Any) -> dict[str, Any]:
    simulated = provider(*text("Hi."), *ended())
    await answer(simulated, request, **own)
    maker_s("MessageCreateParams").validate_python(simulated.body)
    return simulated.body


def words(**body: Any) -> Original:
    """A request in its caller's own words, as far as no policy has changed them."""
    return Original("messages", json.dumps({"model": "m", "max_tokens": 2_048, **body}).encode())


THINKING = {"type": "enabled", "budget_tokens": 1_024}


async def test_a_conversation_that_a_policy_has_changed_is_not_thought_about_in_the_middle_of_a_turn() -> None:
    call = Message("assistant", tool_calls=(ToolCall("c", "clock", "{}"),))
    turn = (*HELLO, call, Message("tool", "noon", tool_call_id="c"))
    own = words(thinking=THINKING, top_k=7)
    assert (await body(Request(HELLO, tools=(CLOCK,), original=own)))["thinking"] == THINKING
    sent = await body(Request(turn, tools=(CLOCK,), original=own))
    assert "thinking" not in sent
    assert sent["top_k"] == 7
    said = [{"role": "user", "content": "Hello."}]
    unchanged = await body(Request(turn, original=words(thinking=THINKING, messages=said)))
    assert (unchanged["thinking"], unchanged["messages"]) == (THINKING, said)


async def test_an_answer_begins_as_its_caller_has_begun_it_where_a_policy_has_changed_the_conversation() -> None:
    sent = await body(Request(HELLO, prefix="Good", original=words()))
    assert sent["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Hello."}]},
        {"role": "assistant", "content": "Good"},
    ]
    said = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Good"}]
    assert (await body(Request(HELLO, prefix="Good", original=words(messages=said))))["messages"] == said


async def test_an_answer_without_a_limit_has_room_in_the_context_that_is_known() -> None:
    assert (await body(Request(HELLO)))["max_tokens"] == 4_096
    assert (await body(Request(HELLO), context_tokens=200_000))["max_tokens"] == 4_096
    assert (await body(Request(HELLO), context_tokens=1_024))["max_tokens"] == 512


async def test_a_question_is_answered_with_what_it_cost() -> None:
    chunks = await answer(provider(event("ping"), *text("Hel", "lo."), *ended()))
    assert text_of(chunks) == "Hello."
    assert end_of(chunks).usage == Usage(
        prompt_tokens=12, completion_tokens=12, cached_prompt_tokens=8, cache_write_tokens=1
    )
    assert sum(chunk.tokens for chunk in chunks) == 12


async def test_what_the_request_sets_is_sent_and_nothing_else() -> None:
    simulated = provider(*text("Hi."), *ended())
    sampling = Sampling(temperature=0.5, top_p=0.9, max_tokens=7, stop=("\n",))
    await answer(simulated, Request((Message("system", "Be brief."), *HELLO), sampling, cache_salt="ours alone"))
    maker_s("MessageCreateParams").validate_python(simulated.body)
    assert simulated.body == {
        "model": "big",
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello."}]}],
        "max_tokens": 7,
        "stream": True,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop_sequences": ["\n"],
    }
    asked = simulated.requests[-1]
    assert asked.url == "http://provider.test/v1/messages"
    assert (asked.headers["x-api-key"], asked.headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert "authorization" not in asked.headers


async def test_a_conversation_with_calls_results_and_pictures_is_sent() -> None:
    messages = (
        Message("user", parts=(Part("text", "What is this?"), Part("image", data=b"\xff\xd8\xff..."))),
        Message(
            "assistant", "Let me see.", tool_calls=(ToolCall("a", "weather", '{"city": 1}'), ToolCall("b", "clock", ""))
        ),
        Message("tool", "rain", tool_call_id="a"),
        Message("tool", "", tool_call_id="b"),
        Message("user", "And?"),
    )
    picture = {"type": "base64", "media_type": "image/jpeg", "data": "/9j/Li4u"}
    assert (await body(Request(messages)))["messages"] == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "What is this?"}, {"type": "image", "source": picture}],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": 1}},
                {"type": "tool_use", "id": "b", "name": "clock", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "rain"},
                {"type": "tool_result", "tool_use_id": "b"},
                {"type": "text", "text": "And?"},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("choice", "parallel", "sent"),
    [
        (ToolChoice(), True, {"type": "auto"}),
        (ToolChoice(), False, {"type": "auto", "disable_parallel_tool_use": True}),
        (ToolChoice("none"), False, {"type": "none"}),
        (ToolChoice("required"), True, {"type": "any"}),
        (ToolChoice("named", "clock"), True, {"type": "tool", "name": "clock"}),
    ],
)
async def test_tools_and_how_they_are_chosen_are_sent(choice: ToolChoice, parallel: bool, sent: object) -> None:
    said = await body(Request(HELLO, tools=(WEATHER, CLOCK), tool_choice=choice, parallel_tool_calls=parallel))
    assert said["tools"] == [
        {"name": "weather", "description": "Tells it.", "input_schema": SCHEMA, "strict": True},
        {"name": "clock", "input_schema": {"type": "object", "properties": {}}},
    ]
    assert said["tool_choice"] == sent


async def test_calls_arrive_piece_by_piece() -> None:
    chunks = await answer(
        provider(
            *text("I look."),
            *called(1, "toolu_1", "weather", "", '{"city":', ' "Oslo"}'),
            *called(2, "toolu_2", "clock"),
            *ended("tool_use"),
        )
    )
    calls = [call for chunk in chunks for call in chunk.tool_calls]
    assert [call for call in calls if call.id] == [
        ToolCallDelta(0, "toolu_1", "weather"),
        ToolCallDelta(1, "toolu_2", "clock"),
    ]
    arguments = {index: "".join(call.arguments for call in calls if call.index == index) for index in (0, 1)}
    assert arguments == {0: '{"city": "Oslo"}', 1: "{}"}
    assert end_of(chunks).reason == FinishReason.TOOL_CALLS


async def test_thoughts_are_no_part_of_the_answer() -> None:
    thoughts = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Hm."},
        {"type": "signature_delta", "signature": "abc"},
    )
    chunks = await answer(
        provider(*thoughts, *text("Yes.", index=1), *ended(output_tokens_details={"thinking_tokens": 5}))
    )
    assert "".join(chunk.reasoning for chunk in chunks) == "Hm."
    assert text_of(chunks) == "Yes."
    assert end_of(chunks).usage.reasoning_tokens == 5


async def test_the_model_is_told_to_think_where_the_api_lets_it() -> None:
    thinking = {"type": "adaptive"}
    assert (await body(Request(HELLO), thinking=thinking))["thinking"] == thinking
    result = (
        *HELLO,
        Message("assistant", tool_calls=(ToolCall("a", "clock", "{}"),)),
        Message("tool", "noon", tool_call_id="a"),
    )
    forced = Request(HELLO, tools=(CLOCK,), tool_choice=ToolChoice("required"))
    for request in (Request(result), forced):
        assert "thinking" not in await body(request, thinking=thinking)


async def test_a_schema_and_extra_fields_share_an_object() -> None:
    request = Request(HELLO, constraint=Constraint("json_schema", json.dumps(SCHEMA)))
    sent = await body(request, extra_body={"output_config": {"effort": "low"}})
    assert sent["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"}


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", FinishReason.STOP),
        ("stop_sequence", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
        ("model_context_window_exceeded", FinishReason.LENGTH),
        ("refusal", FinishReason.CONTENT_FILTER),
        ("pause_turn", FinishReason.INTERRUPTED),
    ],
)
async def test_why_an_answer_ended_is_told(reason: str, expected: FinishReason) -> None:
    assert end_of(await answer(provider(*text("Hi."), *ended(reason)))).reason == expected


@pytest.mark.parametrize(
    "rest",
    [
        (),
        (Broken("reset"),),
        (event("error", error={"type": "overloaded_error", "message": "Overloaded"}),),
        ("data: {half of a me",),
        ("data: []\n\n",),
    ],
)
async def test_a_stream_that_breaks_off_is_never_taken_for_a_whole_answer(rest: tuple[str | Broken, ...]) -> None:
    chunks = await answer(provider(*text("Hello"), *rest))
    assert text_of(chunks) == "Hello"
    assert end_of(chunks).reason == FinishReason.INTERRUPTED


def refusing(status: int, type: str = "x", said: str = "") -> SimulatedProvider:
    error = {"type": "error", "error": {"type": type, "message": said}}
    return SimulatedProvider((json.dumps(error),), status, {"retry-after": "7"})


@pytest.mark.parametrize(
    ("simulated", "error"),
    [
        (refusing(400, "invalid_request_error", f"bad {KEY}"), InvalidInput),
        (refusing(401), ProviderRefused),
        (refusing(402), ProviderRefused),
        (refusing(404), ProviderRefused),
        (refusing(413), InvalidInput),
        (refusing(429), EngineBusy),
        (refusing(529, "overloaded_error"), EngineBusy),
        (refusing(500), EngineDown),
        ((event("error", error={"type": "overloaded_error", "message": "Overloaded"}),), EngineBusy),
        ((event("error", error={"type": "invalid_request_error", "message": "no"}),), InvalidInput),
        ((event("error", error={"type": "api_error", "message": "no"}),), EngineDown),
        ((), EngineDown),
    ],
)
async def test_a_refusal_has_a_type_and_no_secret(
    simulated: SimulatedProvider | tuple[str, ...], error: type[ServiceError]
) -> None:
    if isinstance(simulated, tuple):  # events after a stream's beginning
        simulated = provider(*simulated)
    with pytest.raises(error) as caught:
        await answer(simulated)
    assert KEY not in str(caught.value.message) + str(caught.value.metadata)
    if isinstance(caught.value, EngineBusy) and simulated.status != 200:
        assert caught.value.retry_delay_s == 7


@pytest.mark.parametrize(
    ("request_", "error", "said"),
    [
        (Request(HELLO, Sampling(seed=1)), NotSupported, "sampling.seed"),
        (Request(HELLO, Sampling(presence_penalty=0.5)), NotSupported, "sampling.presence_penalty"),
        (Request(HELLO, Sampling(temperature=1.5)), InvalidInput, "sampling.temperature: 0 to 1"),
        (Request(HELLO, Sampling(top_k=0)), InvalidInput, "sampling.top_k: 1 or more"),
        (Request(HELLO, constraint=Constraint("regex", "a")), InvalidInput, "response_format"),
        (Request(HELLO, prefix="Hel"), NotSupported, "prefix"),
        (
            Request((*HELLO, Message("assistant", tool_calls=(ToolCall("a", "clock", "{"),)), *HELLO)),
            InvalidInput,
            r"messages\[1\].tool_calls\[0\].arguments",
        ),
    ],
)
async def test_what_the_api_cannot_express_is_refused_by_name_and_not_sent(
    request_: Request, error: type[ServiceError], said: str
) -> None:
    simulated = provider()
    with pytest.raises(error, match=said):
        await answer(simulated, request_)
    assert simulated.requests == []


async def test_tokens_are_counted() -> None:
    simulated = SimulatedProvider(('{"input_tokens": 12}',), headers={"content-type": "application/json"})
    assert await engine(simulated).count_tokens((Message("system", "Be brief."), *HELLO), (), Deadline.never()) == 12
    assert simulated.requests[-1].url == "http://provider.test/v1/messages/count_tokens"
    assert simulated.body.keys() == {"model", "messages", "system"}


def test_the_model_is_described() -> None:
    model = engine(provider()).describe()
    assert (model.engine, model.name, model.features) == (
        "anthropic",
        "big",
        {Feature.TOOLS, Feature.IMAGES, Feature.TOP_K},
    )
    with pytest.raises(ValidationError, match="tools, images and top_k"):
        AnthropicSettings(features=(Feature.AUDIO,))


async def test_an_end_that_is_cut_off_interrupts_the_answer() -> None:
    provider = SimulatedProvider((started(), *text("Tok"), 'event: message_stop\ndata: {"type": "message_stop"\n\n'))
    assert end_of(await answer(provider)).reason == FinishReason.INTERRUPTED
