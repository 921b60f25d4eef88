"""A provider's answer as it arrives: events are counted and become chunks. Subclasses read one event."""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from services.llm.dialects.events import Halves
from services.llm.engine import Chunk, Finish, FinishReason, TokenLogprob, ToolCallDelta, Usage
from services.runtime.strict_json import compact

_NOT_AS_IT_SHOULD_BE = (ValueError, AttributeError, TypeError, KeyError, RecursionError)
# Of events that are handed on at once, beside a last one: what they say goes with them, in a message of 4 MiB at most.
MOST_CHARACTERS = 256 * 1024


class BadEvent(Exception):
    """An event is an error, or not what it should be."""


@dataclass(slots=True)
class More:
    """The content of events that arrived together, piece by piece."""

    others: int = 0  # that are none of these: only callers in the provider's own words get them
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tool_calls: list[ToolCallDelta] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)

    @property
    def pieces(self) -> int:
        """Log-probabilities are of the text."""
        return len(self.text) + len(self.reasoning) + len(self.tool_calls) + self.others

    def chunk(self, tokens: int) -> Chunk:
        calls, logprobs = tuple(self.tool_calls), tuple(self.logprobs)
        return Chunk("".join(self.text), tokens, None, calls, "".join(self.reasoning), logprobs)


class Answer(ABC):
    """Reads a provider's stream. `last_says`: whether its last event has content besides the end."""

    last_says: ClassVar[bool] = False

    def __init__(self) -> None:
        self.relays = False  # whether the events themselves are handed on
        self.broken = False  # what comes now cannot be trusted
        self.error = ""  # the event that said so, when it was the provider's own error
        self.calls = Calls()
        self._reason: FinishReason | None = None
        self._usage: Usage | None = None
        self._tokens = 0
        self._held = Chunk("", 0)  # what came with the end travels with it
        self._unsent: list[str] = []  # events that wait for one that says something
        self._gave_events = False
        self._halves = Halves()

    @property
    def begun(self) -> bool:
        """Whether there is anything to give, or was: text, thoughts, a call, an end, or events."""
        return self._tokens > 0 or self._reason is not None or self._gave_events

    @property
    def ended(self) -> bool:
        """Whether the provider has said why it ended."""
        return self._reason is not None

    def add(self, events: list[str]) -> Chunk | None:
        """The content of events that arrived together. Each has about one token; the usage at the end has the count."""
        more, tokens = More(), 0
        for event in events:
            if self.broken or (self.is_last(event) and not self.last_says):
                break
            before = more.pieces
            try:
                self.read(self._halves.joined(event), more)
            except (BadEvent, *_NOT_AS_IT_SHOULD_BE):
                self.broken = True
            else:
                self._unsent += [event] if self.relays else []
            tokens += more.pieces > before
        self._tokens += tokens
        chunk = more.chunk(tokens)
        full = sum(map(len, self._unsent)) > MOST_CHARACTERS
        if self._reason:
            self._held = _joined(self._held, chunk)
            return self._with_events(Chunk("", 0)) if full else None
        return self._with_events(chunk) if more.pieces or more.logprobs or full else None

    def events_of(self, body: str) -> list[str]:
        """The events of a stream that say the same as `body`, an answer in one piece. Raises BadEvent for a body that
        is none."""
        try:
            return [compact(event).decode() for event in self.split(json.loads(body))]
        except _NOT_AS_IT_SHOULD_BE:
            raise BadEvent from None

    def finish(self) -> Chunk:
        """The end: without a reason from the provider, the answer is incomplete."""
        usage = self._usage or Usage()
        if self._reason is None or self._usage is None:  # what was counted when an answer began is not all of it
            usage = replace(usage, completion_tokens=max(usage.completion_tokens, self._tokens))
        handed_on = self._tokens - self._held.tokens
        reason = self._reason or FinishReason.INTERRUPTED
        if reason == FinishReason.STOP and self.calls.begun:  # what some say of a tool that had to be called
            reason = FinishReason.TOOL_CALLS
        tokens = max(usage.completion_tokens - handed_on, 0)
        return self._with_events(replace(self._held, tokens=tokens, finish=Finish(reason, usage)))

    def _with_events(self, chunk: Chunk) -> Chunk:
        if not self._unsent:
            return chunk
        events, self._unsent, self._gave_events = tuple(self._unsent), [], True
        return replace(chunk, relayed=events)

    @abstractmethod
    def is_last(self, event: str) -> bool:
        """Whether nothing that matters comes after it."""

    @abstractmethod
    def split(self, body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """The events that say the same as an answer in one piece, or as an error in its place. Raises BadEvent for
        neither; any other error means that it is malformed."""

    @abstractmethod
    def read(self, event: str, more: More) -> None:
        """Add an event's content to `more`. Raises BadEvent; any other error means that the event is malformed."""


def type_of(event: str) -> str:
    """The type that an event names; empty for one that is malformed or names none."""
    try:
        decoded = json.loads(event)
    except (ValueError, RecursionError):
        return ""
    return str(decoded.get("type") or "") if isinstance(decoded, dict) else ""


def new_id() -> str:
    """A new id for a call."""
    return f"call_{uuid.uuid4().hex}"


class Calls:
    """The calls of an answer, in the order in which they begin. A provider names each by a key of its own."""

    def __init__(self) -> None:
        self._indexes: dict[Hashable, int] = {}
        self._ids: dict[Hashable, str] = {}
        self._next = 0

    @property
    def begun(self) -> bool:
        return bool(self._indexes)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._indexes

    def delta(self, key: Hashable, id: str = "", name: str = "", arguments: str = "") -> ToolCallDelta:
        """More of the call at `key`: of the one there, unless it has a name and another id. Raises ValueError for one
        without a name."""
        if key in self._indexes and (not name or id in ("", self._ids[key])):
            return ToolCallDelta(self._indexes[key], arguments=arguments)
        if not name:
            raise ValueError("a call without a name")
        self._ids[key] = id
        self._indexes[key] = self._next
        self._next += 1
        return ToolCallDelta(self._indexes[key], id or new_id(), name, arguments)


def _joined(first: Chunk, second: Chunk) -> Chunk:
    return Chunk(
        first.text + second.text,
        first.tokens + second.tokens,
        None,
        first.tool_calls + second.tool_calls,
        first.reasoning + second.reasoning,
        first.logprobs + second.logprobs,
    )
