"""A stream of chat completions with more than one choice, or more than text."""

from __future__ import annotations

import json
from typing import Any

from services.llm.dialects.openai_answer import DONE, OpenAIAnswer
from services.llm.engine import Chunk, FinishReason


def event(index: int, finish: str | None = None, **delta: Any) -> str:
    return json.dumps({"choices": [{"index": index, "delta": delta, "finish_reason": finish}]})


def answer(choices: int = 1) -> OpenAIAnswer:
    made = OpenAIAnswer(choices)
    made.relays = True
    return made


def told(chunk: Chunk | None) -> tuple[str, int]:
    assert chunk
    return chunk.text, chunk.tokens


def test_several_choices_go_on_until_the_last_has_ended() -> None:
    reading = answer(2)
    assert told(reading.add([event(0, content="one")])) == ("one", 1)
    assert told(reading.add([event(1, content="uno"), event(0, "stop", content="!")])) == ("!", 2)
    assert told(reading.add([event(1, content=" dos")])) == ("", 1), "it is told at once"
    assert reading.add([event(1, "length", content=" tres")]) is None
    end = reading.finish()
    assert end.finish
    assert (end.finish.reason, end.finish.usage.completion_tokens) == (FinishReason.STOP, 5)


def test_a_choice_that_has_not_ended_leaves_the_answer_incomplete() -> None:
    reading = answer(2)
    reading.add([event(0, "stop", content="one"), event(1, content="uno")])
    end = reading.finish()
    assert end.finish
    assert end.finish.reason is FinishReason.INTERRUPTED


def test_a_server_may_make_fewer_choices_than_were_asked_for() -> None:
    reading = answer(3)
    reading.add([event(0, "stop", content="one"), DONE])
    end = reading.finish()
    assert end.finish
    assert end.finish.reason is FinishReason.STOP


def test_sound_is_handed_on_and_what_it_says_is_the_text() -> None:
    reading = answer()
    assert told(reading.add([event(0, audio={"id": "a", "transcript": "Tokyo"})])) == ("Tokyo", 1)
    chunk = reading.add([event(0, audio={"data": "eA=="})])
    assert chunk
    assert len(chunk.relayed) == 1


def test_a_custom_call_is_handed_on_and_breaks_nothing() -> None:
    reading = answer()
    first = {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "sql", "input": ""}}
    chunk = reading.add([event(0, tool_calls=[first])])
    assert chunk
    assert chunk.relayed
    reading.add([event(0, tool_calls=[{"index": 0, "custom": {"input": "select 1"}}]), event(0, "tool_calls")])
    end = reading.finish()
    assert end.finish
    assert (end.finish.reason, reading.broken) == (FinishReason.TOOL_CALLS, False)
