"""Reading vLLM's outputs, with a scripted parser in place of its own, and counting them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from services.llm.engine import FinishReason, Load, Message, Request, TokenLogprob, Tool, ToolCallDelta, ToolChoice
from services.llm.vllm.reading import (
    AnswerPiece,
    ForcedReading,
    ParsedReading,
    PlainReading,
    UnreadableOutput,
    VllmReading,
)
from services.llm.vllm.tally import TokenTally, combine

FORCED = Request((Message("user", "Hi."),), tools=(Tool("clock"),), tool_choice=ToolChoice("named", "clock"))


class ScriptedParser:
    """Thoughts end at `|`, and calls begin at `@`."""

    def __init__(self) -> None:
        self._thinks = True

    def parse_delta(self, text: str, tokens: list[int], asked: Any, prompt: list[int], *, finished: bool) -> Any:
        if text == "!":
            raise IndexError(text)
        message = SimpleNamespace(content=None, reasoning=None, tool_calls=[])
        if text == "|":
            self._thinks = False
            return None
        if text.startswith("@"):
            function = SimpleNamespace(name=text[2:], arguments=None)
            message.tool_calls = [SimpleNamespace(index=int(text[1]), id=f"call_{text[1]}", function=function)]
        elif self._thinks:
            message.reasoning = text
        else:
            message.content = text
        return message

    def count_reasoning_tokens(self, tokens: Sequence[int]) -> int:
        return len([token for token in tokens if token < 0])


def parsed(*, parallel: bool = True) -> ParsedReading:
    return ParsedReading(ScriptedParser(), None, [1], parallel=parallel)


def output(text: str, tokens: list[int], reason: str | None = None, logprobs: Any = None) -> Any:
    completion = SimpleNamespace(
        text=text, token_ids=tokens, finish_reason=reason, logprobs=logprobs, spec_decode_metrics=None
    )
    times = SimpleNamespace(scheduled_ts=1.5, queued_ts=1.0)
    return SimpleNamespace(outputs=[completion], finished=reason is not None, num_cached_tokens=2, metrics=times)


def test_thoughts_text_and_calls_are_separated() -> None:
    reading = parsed()
    said = [reading.read(text, [1], finished=False) for text in ("Hm.", "|", "Yes.", "@0clock", "@1clock")]
    assert said[:3] == [AnswerPiece(reasoning="Hm."), AnswerPiece(), AnswerPiece("Yes.")]
    assert said[3:] == [
        AnswerPiece(tool_calls=(ToolCallDelta(0, "call_0", "clock"),)),
        AnswerPiece(tool_calls=(ToolCallDelta(1, "call_1", "clock"),)),
    ]
    assert reading.called


def test_only_the_first_call_is_given_where_one_is_asked_for() -> None:
    reading = parsed(parallel=False)
    assert reading.read("@0clock", [1], finished=False)
    assert not reading.read("@1clock", [1], finished=False)


def test_an_exception_of_a_parser_is_reported() -> None:
    with pytest.raises(UnreadableOutput, match="IndexError"):
        parsed().read("!", [1], finished=False)


def test_a_call_that_is_forced_comes_behind_the_thoughts() -> None:
    reading = ForcedReading(FORCED, parsed())
    assert reading.read("Hm.", [1], finished=False) == AnswerPiece(reasoning="Hm.")
    reading.read("|", [1], finished=False)
    (call,) = reading.read("{}", [1], finished=True).tool_calls
    assert (call.index, call.name, call.arguments) == (0, "clock", "{}")


@pytest.mark.parametrize(
    ("reading", "ended", "expected"),
    [
        (PlainReading(), "stop", FinishReason.STOP),
        (ForcedReading(FORCED, PlainReading()), "stop", FinishReason.TOOL_CALLS),
        (ForcedReading(FORCED, PlainReading()), "length", FinishReason.LENGTH),
        (PlainReading(), "abort", FinishReason.INTERRUPTED),
    ],
)
def test_an_answer_that_calls_tools_ends_with_them(reading: VllmReading, ended: str, expected: FinishReason) -> None:
    chunk = TokenTally(3, reading).add(output("{}", [5], ended))
    assert chunk
    assert chunk.finish
    assert (chunk.finish.reason, chunk.finish.queue_ms) == (expected, 500)


def test_tokens_that_say_nothing_yet_are_counted_with_the_next_that_do() -> None:
    tally = TokenTally(3, parsed())
    assert tally.add(output("|", [-1])) is None
    chunk = tally.add(output("Yes.", [5, 6], "stop"))
    assert chunk
    assert (chunk.text, chunk.tokens) == ("Yes.", 3)
    assert chunk.finish
    assert (chunk.finish.usage.completion_tokens, chunk.finish.usage.reasoning_tokens) == (3, 1)


def test_log_probabilities_come_with_their_text_and_no_more_than_asked() -> None:
    def likely(text: str, logprob: float, rank: int) -> Any:
        return SimpleNamespace(decoded_token=text, logprob=logprob, rank=rank)

    logprobs = [{7: likely("c", -3.0, 3), 5: likely("a", -0.1, 1), 6: likely("b", -1.0, 2)}]
    chunk = TokenTally(3, PlainReading(), 2).add(output("c", [7], "stop", logprobs))
    assert chunk
    best = (TokenLogprob("a", b"a", -0.1), TokenLogprob("b", b"b", -1.0))
    assert chunk.logprobs == (TokenLogprob("c", b"c", -3.0, best),)
    chunk = TokenTally(3, PlainReading(), 0).add(output("c", [7], "stop", logprobs))
    assert chunk
    assert chunk.logprobs == (TokenLogprob("c", b"c", -3.0),)


@pytest.mark.parametrize(
    ("reported_running", "unfinished", "load"),
    [
        (0, 0, Load(0, 0)),
        (2, 5, Load(2, 3)),
        (1, 0, Load(0, 0)),  # aborted, and the scheduler has said nothing since
        (0, 1, Load(0, 1)),  # added, and the scheduler has not run since
    ],
)
def test_every_unfinished_request_runs_or_waits(reported_running: int, unfinished: int, load: Load) -> None:
    assert combine(reported_running, unfinished) == load
