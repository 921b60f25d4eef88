"""The engine for Anthropic's Messages API, against a simulated one: answers, refusals and counts."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from services.llm.engine import Feature, FinishReason, Message, ToolCallDelta, Usage
from services.llm.errors import EngineBusy, EngineDown
from services.llm.providers.config import AnthropicSettings
from services.llm.providers.transport.wire import Broken
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput, ServiceError
from tests.unit.llm.providers.messages_api import HELLO, answer, block, ended, engine, event, provider, text
from tests.unit.llm.providers.simulated_provider import KEY, SimulatedProvider, end_of, text_of


def called(index: int, id: str, name: str, *pieces: str) -> list[str]:
    deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
    return block(index, {"type": "tool_use", "id": id, "name": name, "input": {}}, *deltas)


async def test_a_question_is_answered_with_what_it_cost() -> None:
    chunks = await answer(provider(event("ping"), *text("Hel", "lo."), *ended()))
    assert text_of(chunks) == "Hello."
    assert end_of(chunks).usage == Usage(
        prompt_tokens=12, completion_tokens=12, cached_prompt_tokens=8, cache_write_tokens=1
    )
    assert sum(chunk.tokens for chunk in chunks) == 12


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
async def test_the_finish_reason_is_reported(reason: str, expected: FinishReason) -> None:
    assert end_of(await answer(provider(*text("Hi."), *ended(reason)))).reason == expected


@pytest.mark.parametrize(
    "rest",
    [
        (),
        (Broken("reset"),),
        (event("error", error={"type": "overloaded_error", "message": "Overloaded"}),),
        ("data: {half of a me",),
        ("data: []\n\n",),
        ('event: message_stop\ndata: {"type": "message_stop"\n\n',),
    ],
)
async def test_a_stream_that_breaks_off_is_never_taken_for_a_whole_answer(rest: tuple[str | Broken, ...]) -> None:
    chunks = await answer(provider(*text("Hello"), *rest))
    assert text_of(chunks) == "Hello"
    assert end_of(chunks).reason == FinishReason.INTERRUPTED


async def test_an_answer_that_breaks_off_costs_the_tokens_that_came_and_not_the_one_it_began_with() -> None:
    end = end_of(await answer(provider(*text("One", " two", " three"), Broken("the connection ended"))))
    assert (end.reason, end.usage.prompt_tokens) == (FinishReason.INTERRUPTED, 12)
    assert end.usage.completion_tokens == 3


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ((event("error", error={"type": "overloaded_error", "message": f"bad {KEY}"}),), EngineBusy),
        ((event("error", error={"type": "invalid_request_error", "message": f"bad {KEY}"}),), InvalidInput),
        ((event("error", error={"type": "api_error", "message": f"bad {KEY}"}),), EngineDown),
        ((), EngineDown),
    ],
)
async def test_a_refusal_in_a_stream_has_a_type_and_no_secret(
    pieces: tuple[str, ...], error: type[ServiceError]
) -> None:
    with pytest.raises(error) as caught:
        await answer(provider(*pieces))
    assert KEY not in str(caught.value.message) + str(caught.value.metadata)


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
