"""A stream of chat completions with more than one choice, or more than text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.llm.dialects.openai_answer import DONE, OpenAIAnswer
from services.llm.engine import Chunk, FinishReason, Usage


def event(index: int, finish: str | None = None, **delta: Any) -> str:
    return json.dumps({"choices": [{"index": index, "delta": delta, "finish_reason": finish}]})


def answer(choices: int = 1) -> OpenAIAnswer:
    made = OpenAIAnswer(choices)
    made.relays = True
    return made


def text_and_count(chunk: Chunk | None) -> tuple[str, int]:
    assert chunk
    return chunk.text, chunk.tokens


def ended(reading: OpenAIAnswer, *events: str) -> tuple[list[Chunk], FinishReason, Usage]:
    """The chunks of these events and of the end, and what the end says."""
    chunks = [chunk for each in events if (chunk := reading.add([each]))]
    end = reading.finish()
    assert end.finish
    return [*chunks, end], end.finish.reason, end.finish.usage


def test_several_choices_go_on_until_the_last_has_ended() -> None:
    reading = answer(2)
    assert text_and_count(reading.add([event(0, content="one")])) == ("one", 1)
    assert text_and_count(reading.add([event(1, content="uno"), event(0, "stop", content="!")])) == ("!", 2)
    assert text_and_count(reading.add([event(1, content=" dos")])) == ("", 1), "the token count is reported at once"
    assert reading.add([event(1, "length", content=" tres")]) is None
    _, reason, usage = ended(reading)
    assert (reason, usage.completion_tokens) == (FinishReason.STOP, 5)


def test_a_choice_that_has_not_ended_leaves_the_answer_incomplete() -> None:
    events = event(0, "stop", content="one"), event(1, content="uno")
    assert ended(answer(2), *events)[1] is FinishReason.INTERRUPTED


def test_a_server_may_make_fewer_choices_than_were_asked_for() -> None:
    assert ended(answer(3), event(0, "stop", content="one"), DONE)[1] is FinishReason.STOP


def test_sound_is_handed_on_and_what_it_says_is_the_text() -> None:
    reading = answer()
    assert text_and_count(reading.add([event(0, audio={"id": "a", "transcript": "Tokyo"})])) == ("Tokyo", 1)
    chunk = reading.add([event(0, audio={"data": "eA=="})])
    assert chunk
    assert len(chunk.relayed) == 1


def test_a_custom_call_is_handed_on_and_breaks_nothing() -> None:
    reading = answer()
    first = {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "sql", "input": ""}}
    more = {"index": 0, "custom": {"input": "select 1"}}
    calls = event(0, tool_calls=[first]), event(0, tool_calls=[more])
    (chunk, *_), reason, _ = ended(reading, *calls, event(0, "tool_calls"))
    assert chunk.relayed
    assert (reason, reading.broken) == (FinishReason.TOOL_CALLS, False)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("stop", FinishReason.STOP),
        ("eos_token", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("MAX_TOKENS", FinishReason.LENGTH),
        ("model_length", FinishReason.LENGTH),
        ("model_context_window_exceeded", FinishReason.LENGTH),
        ("content_filter: RECITATION", FinishReason.CONTENT_FILTER),
        ("SAFETY", FinishReason.CONTENT_FILTER),
        ("sensitive", FinishReason.CONTENT_FILTER),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", FinishReason.INTERRUPTED),
        ("insufficient_system_resource", FinishReason.INTERRUPTED),
        ("network_error", FinishReason.INTERRUPTED),
    ],
)
def test_an_answer_that_was_cut_is_not_taken_for_a_whole_one(said: str, reason: FinishReason) -> None:
    assert ended(OpenAIAnswer(), event(0, content="Tok"), event(0, said))[1] is reason


@pytest.mark.parametrize(
    ("logprobs", "read"),
    [
        ('{"content":[{"token":"a","logprob":-0.5},{"token":"b","logprob":-Infinity}]}', [-0.5, -9_999]),
        ('{"content":[{"token":"a","logprob":NaN}]}', [-9_999]),
        ("-0.5", []),  # Together
    ],
)
def test_logprobs_that_json_cannot_carry_break_no_answer(logprobs: str, read: list[float]) -> None:
    end = f'{{"choices":[{{"index":0,"delta":{{"content":"ab"}},"finish_reason":"stop","logprobs":{logprobs}}}]}}'
    (chunk,), reason, _ = ended(OpenAIAnswer(), end)
    assert ([each.logprob for each in chunk.logprobs], chunk.text, reason) == (read, "ab", FinishReason.STOP)


def test_thoughts_and_text_in_a_list_of_parts_are_separated() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Small"}, {"type": "text", "text": " talk."}]}
    reference = {"type": "reference", "reference_ids": [1]}
    chunks, *_ = ended(
        OpenAIAnswer(),
        event(0, content=[thinking]),
        event(0, content=[{"type": "thinking", "thinking": [reference]}]),
        event(0, content=[{"type": "text", "text": "Hel"}, reference]),
        event(0, "stop", content="lo."),
    )
    assert "".join(chunk.reasoning for chunk in chunks) == "Small talk."
    assert "".join(chunk.text for chunk in chunks) == "Hello."


@pytest.mark.parametrize(
    "pieces",
    [
        [{"id": "a", "type": "function"}, {"function": {"name": "search"}}, {"function": {"arguments": '{"q": true}'}}],
        [{"id": "a", "function": {"name": "search", "arguments": ""}}, {"function": {"arguments": {"q": True}}}],
        [{"id": "a", "function": {}}, {"function": {"name": "search", "arguments": '{"q": true}'}}],
    ],
)
def test_a_call_is_whole_in_whichever_order_its_fields_come(pieces: list[dict[str, Any]]) -> None:
    deltas = [event(0, tool_calls=[{"index": 0, **piece}]) for piece in pieces]
    chunks, reason, _ = ended(OpenAIAnswer(), *deltas, event(0, "tool_calls"))
    first, *more = [delta for chunk in chunks for delta in chunk.tool_calls]
    assert (first.id, first.name) == ("a", "search")
    assert "".join(delta.arguments for delta in (first, *more)) == '{"q": true}'
    assert {delta.id for delta in more} <= {""}
    assert reason is FinishReason.TOOL_CALLS


def test_an_id_that_comes_after_the_name_begins_no_second_call() -> None:
    named, late = {"function": {"name": "search"}}, {"id": "a", "function": {"arguments": "{}"}}
    deltas = [event(0, tool_calls=[{"index": 0, **piece}]) for piece in (named, late)]
    chunks, reason, _ = ended(OpenAIAnswer(), *deltas, event(0, "tool_calls"))
    assert [(delta.index, delta.arguments) for chunk in chunks for delta in chunk.tool_calls] == [(0, ""), (0, "{}")]
    assert reason is FinishReason.TOOL_CALLS


def test_a_call_that_gets_no_name_interrupts_the_answer() -> None:
    _, reason, _ = ended(OpenAIAnswer(), event(0, tool_calls=[{"index": 0, "id": "a"}]), event(0, "tool_calls"))
    assert reason is FinishReason.INTERRUPTED


@pytest.mark.parametrize(
    ("counts", "completion"),
    [
        ({"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623}, 603),
        ({"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 218}, 198),
        ({"prompt_tokens": 20, "completion_tokens": 198}, 198),
        ({"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 3}, 198),
    ],
)
def test_thoughts_that_only_the_total_counts_are_generated_tokens(counts: dict[str, int], completion: int) -> None:
    *_, usage = ended(OpenAIAnswer(), event(0, "stop", content="Hi."), json.dumps({"choices": [], "usage": counts}))
    assert (usage.prompt_tokens, usage.completion_tokens) == (20, completion)


@pytest.mark.parametrize(
    ("counts", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 80}, "cached_tokens": 7}, 80),
        ({"prompt_tokens_details": {"cached_tokens": 0}, "prompt_cache_hit_tokens": 7}, 0),
        ({"prompt_cache_hit_tokens": 80, "prompt_cache_miss_tokens": 20}, 80),
        ({"cached_tokens": 80}, 80),
        ({}, 0),
    ],
    ids=["OpenAI", "nothing", "DeepSeek", "Kimi", "none"],
)
@pytest.mark.parametrize("in_choice", [True, False])
def test_cached_tokens_are_read_by_each_name(counts: dict[str, Any], cached: int, in_choice: bool) -> None:
    usage = {"usage": {"prompt_tokens": 100, "completion_tokens": 50, **counts}}
    end: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": "stop"}
    last = {"choices": [end | usage]} if in_choice else {"choices": [end], **usage}
    *_, counted = ended(OpenAIAnswer(), event(0, content="Hi."), json.dumps(last))
    assert (counted.prompt_tokens, counted.cached_prompt_tokens, counted.completion_tokens) == (100, cached, 50)


def test_an_answer_that_broke_off_has_at_least_the_tokens_that_came() -> None:
    begun = json.loads(event(0, content="a"))
    begun["usage"] = {"prompt_tokens": 7, "completion_tokens": 1}
    _, reason, usage = ended(OpenAIAnswer(), json.dumps(begun), *(event(0, content="b") for _ in range(4)))
    assert (reason, usage) == (FinishReason.INTERRUPTED, Usage(prompt_tokens=7, completion_tokens=5))
