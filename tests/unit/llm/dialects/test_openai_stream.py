"""Streams of OpenAI's API, as a provider sends them: calls, thoughts, log-probabilities and what a filter withheld."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.llm.engine import Chunk, FinishReason, TokenLogprob, ToolCallDelta, Usage
from tests.unit.llm.providers.asking import answer
from tests.unit.llm.providers.simulated_provider import DONE, SimulatedProvider, delta, end_of, event, text_of


def call(index: int, id: str = "", name: str = "", arguments: str = "", **more: Any) -> str:
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    return delta(tool_calls=[{"index": index, "id": id or None, "type": "function", "function": function}], **more)


def calls(chunks: list[Chunk]) -> list[ToolCallDelta]:
    """Each call as one delta."""
    whole: dict[int, ToolCallDelta] = {}
    for more in (each for chunk in chunks for each in chunk.tool_calls):
        assert bool(more.id and more.name) == (more.index not in whole)
        before = whole.setdefault(more.index, ToolCallDelta(more.index, more.id, more.name))
        whole[more.index] = ToolCallDelta(more.index, before.id, before.name, before.arguments + more.arguments)
    return list(whole.values())


async def test_calls_arrive_piece_by_piece() -> None:
    pieces = (
        call(0, "call_1", "weather"),
        call(0, arguments='{"city": '),
        call(0, arguments='"Oslo"}'),
        call(1, "call_2", "clock", "{}"),
        delta("tool_calls"),
        event(usage={"prompt_tokens": 9, "completion_tokens": 30}),
        DONE,
    )
    chunks = await answer(SimulatedProvider(pieces))
    assert calls(chunks) == [
        ToolCallDelta(0, "call_1", "weather", '{"city": "Oslo"}'),
        ToolCallDelta(1, "call_2", "clock", "{}"),
    ]
    assert end_of(chunks).reason == FinishReason.TOOL_CALLS
    assert sum(chunk.tokens for chunk in chunks) == 30


async def test_calls_with_the_same_index_are_separated_by_their_ids() -> None:
    pieces = (call(0, "a", "weather", "{}"), call(0, "b", "clock", "{}"), delta("stop"), DONE)
    chunks = await answer(SimulatedProvider(pieces))
    assert [(each.index, each.id) for each in calls(chunks)] == [(0, "a"), (1, "b")]
    assert end_of(chunks).reason == FinishReason.TOOL_CALLS  # whatever it says


async def test_a_call_without_an_id_gets_one() -> None:
    (only,) = calls(await answer(SimulatedProvider((call(0, "", "clock"), call(0, arguments="{}"), DONE))))
    assert only.id.startswith("call_")
    assert only.arguments == "{}"


@pytest.mark.parametrize(
    "first", [call(0, "call_1", "clock", "{"), delta(reasoning="Hm."), delta(reasoning_content="Hm.")]
)
async def test_a_call_and_a_thought_are_a_beginning(first: str) -> None:
    chunks = await answer(SimulatedProvider((first, 'data: {"error": {"message": "overloaded"}}\n\n')))
    assert end_of(chunks).reason == FinishReason.INTERRUPTED


async def test_thoughts_are_no_part_of_the_answer() -> None:
    pieces = (delta(reasoning_content="Hm"), delta(reasoning="…"), event("Yes."), delta("stop"), DONE)
    usage = {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 7}}
    chunks = await answer(SimulatedProvider((*pieces[:-1], event(usage=usage), DONE)))
    assert "".join(chunk.reasoning for chunk in chunks) == "Hm…"
    assert text_of(chunks) == "Yes."
    assert end_of(chunks).usage == Usage(completion_tokens=9, reasoning_tokens=7)


async def test_log_probabilities_come_with_their_text() -> None:
    entry = {"token": "Yes", "logprob": -0.1, "bytes": [89, 101, 115]}
    likely = {"token": "No", "logprob": -2.5, "bytes": None}
    choice = {
        "delta": {"content": "Yes"},
        "finish_reason": "stop",
        "logprobs": {"content": [{**entry, "top_logprobs": [entry, likely]}]},
    }
    chunks = await answer(SimulatedProvider((f"data: {json.dumps({'choices': [choice]})}\n\n", DONE)))
    yes, no = TokenLogprob("Yes", b"Yes", -0.1), TokenLogprob("No", b"No", -2.5)
    assert chunks[-1].logprobs == (TokenLogprob("Yes", b"Yes", -0.1, (yes, no)),)


@pytest.mark.parametrize(
    "pieces",
    [(event("Hel"), delta("content_filter"), DONE), (delta(refusal="I will not."), delta("stop"), DONE)],
    ids=["cut off", "refused"],
)
async def test_text_withheld_by_a_filter_is_reported(pieces: tuple[str, ...]) -> None:
    assert end_of(await answer(SimulatedProvider(pieces))).reason == FinishReason.CONTENT_FILTER
