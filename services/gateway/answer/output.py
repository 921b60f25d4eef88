"""The written part of an answer: text, reasoning, calls and log-probabilities."""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence
from dataclasses import dataclass, field

from hedgerow.chat.v1 import chat_pb2
from services.runtime.deadline import Clock


@dataclass(slots=True)
class Output:
    """Appended to as messages come. `prefix` is a part of the text that the client already has. `logprobs`: of its
    tokens; the ledger passes the field of the final event, so that they need not be copied at the end."""

    clock: Clock
    logprobs: MutableSequence[chat_pb2.TokenLogprob] = field(default_factory=list)
    prefix: str = ""
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tool_calls: dict[int, chat_pb2.ToolCall] = field(default_factory=dict)  # by their index, without arguments
    arguments: dict[int, list[str]] = field(default_factory=dict)  # of calls, by their index
    tokens: int = 0  # of all of these, as far as they are known
    first_at: float | None = None  # when the first part came
    usable_at: float | None = None  # when its first sentence was complete, as `TextWriter` finds it

    @property
    def begun(self) -> bool:
        """Whether there is text or a call; reasoning alone is no answer."""
        return bool(self.text or self.tool_calls)

    @property
    def whole_text(self) -> str:
        return self.prefix + "".join(self.text)

    @property
    def calls(self) -> list[chat_pb2.ToolCall]:
        """The calls, in the order of their index."""
        return [
            chat_pb2.ToolCall(id=call.id, name=call.name, arguments="".join(self.arguments[index]))
            for index, call in sorted(self.tool_calls.items())
        ]

    def add_text(self, text: str, tokens: int = 0, logprobs: Iterable[chat_pb2.TokenLogprob] = ()) -> None:
        self._came(tokens)
        self.text.append(text)
        self.logprobs.extend(logprobs)

    def restart(self) -> None:
        """Restart for another text. The tokens so far stay counted."""
        self.text, self.usable_at = [], None
        del self.logprobs[:]

    def close(self) -> None:
        """Note that the answer is over: text without a sentence end is usable now."""
        if self.usable_at is None and self.text:
            self.usable_at = self.clock()

    def add_reasoning(self, text: str, tokens: int) -> None:
        self._came(tokens)
        self.reasoning.append(text)

    def add_calls(self, deltas: Iterable[chat_pb2.ToolCallDelta], tokens: int) -> None:
        self._came(tokens)
        for delta in deltas:
            call = self.tool_calls.setdefault(delta.index, chat_pb2.ToolCall())
            call.id, call.name = delta.id or call.id, delta.name or call.name
            self.arguments.setdefault(delta.index, []).append(delta.arguments)

    def _came(self, tokens: int) -> None:
        if self.first_at is None:
            self.first_at = self.clock()
        self.tokens += tokens
