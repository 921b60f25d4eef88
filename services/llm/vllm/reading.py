"""What vLLM's outputs say: text, thoughts and calls. A reading is of one answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from services.llm.answer import Calls
from services.llm.engine import Request, ToolCallDelta
from services.llm.vllm import text_tools
from services.llm.vllm.forced_calls import ListedCalls, NamedCall


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """More of an answer."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.reasoning or self.tool_calls)


class VllmReading(Protocol):
    """Turns what was generated into what it says."""

    @property
    def called(self) -> bool:
        """Whether a call has begun."""
        ...

    def read(self, text: str, tokens: Sequence[int], *, finished: bool) -> AnswerPiece:
        """The next piece. Raises Unreadable."""
        ...

    def reasoning_tokens(self) -> int:
        """The reasoning tokens so far."""
        ...


class UnreadableOutput(Exception):
    """A parser of vLLM's broke over what the model wrote."""


class PlainReading:
    """Reads an answer that is only text."""

    called = False

    def read(self, text: str, tokens: Sequence[int], *, finished: bool) -> AnswerPiece:
        return AnswerPiece(text)

    def reasoning_tokens(self) -> int:
        return 0


class _OverAnother:
    """Reads the text that another reading finds."""

    def __init__(self, inner: VllmReading):
        self._inner, self.called = inner, False

    def reasoning_tokens(self) -> int:
        return self._inner.reasoning_tokens()


class ForcedReading(_OverAnother):
    """The text is calls."""

    def __init__(self, request: Request, inner: VllmReading):
        super().__init__(inner)
        choice = request.tool_choice
        self._calls = NamedCall(choice.name) if choice.mode == "named" else ListedCalls()

    def read(self, text: str, tokens: Sequence[int], *, finished: bool) -> AnswerPiece:
        said = self._inner.read(text, tokens, finished=finished)
        calls = tuple(self._calls.read(said.text)) if said.text else ()
        self.called = self.called or bool(calls)
        return AnswerPiece(reasoning=said.reasoning, tool_calls=calls)


class TaggedReading(_OverAnother):
    """The text may end in calls between tags (`text_tools`)."""

    def __init__(self, inner: VllmReading):
        super().__init__(inner)
        self._held = ""  # text that may be the beginning of a tag
        self._calls: ListedCalls | None = None  # once there was a tag

    def read(self, text: str, tokens: Sequence[int], *, finished: bool) -> AnswerPiece:
        said = self._inner.read(text, tokens, finished=finished)
        before, behind = self._split(said.text, finished=finished)
        calls = tuple(self._calls.read(behind)) if self._calls and behind else ()
        self.called = self.called or bool(calls)
        return AnswerPiece(before, said.reasoning, calls)

    def _split(self, more: str, *, finished: bool) -> tuple[str, str]:
        """The text before the first tag, as far as that is certain, and the text behind it."""
        if self._calls:
            return "", more
        text, self._held = self._held + more, ""
        before, tag, behind = text.partition(text_tools.BEGIN)
        if tag:
            self._calls = ListedCalls()
        elif not finished:
            held = _overlap(text, text_tools.BEGIN)
            before, self._held = text[: len(text) - held], text[len(text) - held :]
        return before, behind


def _overlap(text: str, tag: str) -> int:
    """How many characters at the end of `text` may be the beginning of `tag`."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:size])), 0)


class ParsedReading:
    """A parser of vLLM's says what is what. `asked` is the request in vLLM's own terms."""

    def __init__(self, parser: Any, asked: Any, prompt: Sequence[int], *, parallel: bool):
        self._parser, self._asked, self._prompt, self._parallel = parser, asked, list(prompt), parallel
        self._calls, self._tokens = Calls(), list[int]()

    @property
    def called(self) -> bool:
        return self._calls.begun

    def read(self, text: str, tokens: Sequence[int], *, finished: bool) -> AnswerPiece:
        self._tokens.extend(tokens)
        try:
            message = self._parser.parse_delta(text, list(tokens), self._asked, self._prompt, finished=finished)
            if message is None:
                return AnswerPiece()
            calls = tuple(self._call(call) for call in message.tool_calls or () if self._parallel or not call.index)
        except Exception as error:  # it is written for one model's habits, and models have others
            raise UnreadableOutput(type(error).__name__) from None
        return AnswerPiece(message.content or "", message.reasoning or "", calls)

    def reasoning_tokens(self) -> int:
        return int(self._parser.count_reasoning_tokens(tuple(self._tokens)))

    def _call(self, call: Any) -> ToolCallDelta:
        function = call.function
        name, arguments = (function.name or "", function.arguments or "") if function else ("", "")
        return self._calls.delta(call.index, call.id or "", name, arguments)
