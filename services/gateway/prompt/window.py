"""What of a conversation a model's context holds: the instructions and the question always, of the turns before it the
newest.

How many of the oldest turns go moves in steps of a quarter of the context: for as long as a conversation grows within
one, the same ones are left out, and its prompt goes on beginning as the one before did. That needs no memory, so every
gateway cuts at the same place.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb

Messages = tuple[chat_pb2.Message, ...]
_STEPS = 4  # of a context
_STEP_BYTES_PER_TOKEN = 4  # as English has
_BYTES_PER_TOKEN = 3  # where the model does not count: other languages have fewer
_TEMPLATE_TOKENS = 5  # what ChatML adds to a message; with fewer, a conversation of many short ones would not fit
_TEMPLATE_BYTES = 16  # the most tokens that a template adds to a message
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n")


@dataclass(frozen=True, slots=True)
class ConversationParts:
    """A conversation in its parts: system messages first, then turns, each from a user's message to the next, and the
    last of these, which is the question with what tools gave back to it."""

    head: Messages
    turns: tuple[Messages, ...]
    question: Messages

    def without(self, turns: int, note: Messages = ()) -> Messages:
        """The messages without the oldest `turns`; `note` replaces them."""
        kept = [message for turn in self.turns[turns:] for message in turn]
        return (*self.head, *note, *kept, *self.question)


def parts(messages: Sequence[chat_pb2.Message]) -> ConversationParts:
    """A conversation that is not empty, in its parts."""
    head = tuple(takewhile(lambda message: message.role == chat_pb2.ROLE_SYSTEM, messages))
    rest = messages[len(head) :]
    begins = [index for index, message in enumerate(rest) if message.role == chat_pb2.ROLE_USER or index == 0]
    turns = [tuple(rest[begin:end]) for begin, end in zip(begins, [*begins[1:], len(rest)], strict=True)]
    return ConversationParts(head, tuple(turns[:-1]), turns[-1] if turns else ())


def most_tokens(messages: Sequence[chat_pb2.Message], more_bytes: int = 0) -> int:
    """An upper bound of the prompt's tokens: a token has at least a byte. It takes microseconds, and is sufficient for
    a short prompt."""
    return bound(size(messages), len(messages), more_bytes)


def bound(written: int, messages: int, reserved: int) -> int:
    """The most tokens of that many bytes in so many messages, and of the answer."""
    return written + _TEMPLATE_BYTES * (messages + 1) + reserved


def estimated_tokens(messages: Sequence[chat_pb2.Message], more_bytes: int = 0) -> int:
    """An estimate, where the model does not count."""
    return -(-(size(messages) + more_bytes) // _BYTES_PER_TOKEN) + _TEMPLATE_TOKENS * len(messages)


def size(messages: Iterable[chat_pb2.Message]) -> int:
    """The size of all texts in the messages, in bytes of UTF-8."""
    return sum(map(_size, messages))


def _size(message: chat_pb2.Message) -> int:
    size = size_of(message.content)
    for part in message.parts:
        size += size_of(part.text)
    for call in message.tool_calls:
        size += size_of(call.name) + size_of(call.arguments)
    return size


def size_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def step_bytes(limit_tokens: int) -> int:
    """How much of the oldest turns goes at once."""
    return max(1, limit_tokens * _STEP_BYTES_PER_TOKEN // _STEPS)


def cut(turns: Sequence[Messages], steps: int, step: int) -> int:
    """How many of the oldest turns make up `steps` steps."""
    gone = 0
    for index, turn in enumerate(turns):
        if gone >= steps * step:
            return index
        gone += size(turn)
    return len(turns)


def shortened(text: str, most_bytes: int) -> str:
    """The end of a text, from the beginning of a sentence on; of one that is longer than that, nothing."""
    if len(text.encode()) <= most_bytes:
        return text
    ends = [found.end() for found in _SENTENCE_END.finditer(text)]
    first = bisect_left(ends, True, key=lambda end: len(text[end:].encode()) <= most_bytes)
    return text[ends[first] :] if first < len(ends) else ""


def is_whole(policy: pb.PromptPolicy, usual: bool) -> bool:
    """Whether it goes to the model as it is: as the request says, or as `usual`."""
    if policy.truncation:
        return policy.truncation == pb.TRUNCATION_DISABLED
    return policy.whole or usual
