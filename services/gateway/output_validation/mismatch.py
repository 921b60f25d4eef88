"""The outcome of an output validation, and the turns that ask a model for another answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hedgerow.chat.v1 import chat_pb2

_MOST_ANSWER, _MOST_SCHEMA = 16_000, 8_000  # characters that it is shown


@dataclass(frozen=True, slots=True)
class Mismatch:
    """`where` is for accounts, and quotes nothing of the answer; `why` may, and is for the model that wrote it."""

    where: str
    why: str


class Unchecked(Exception):
    """The text cannot be checked: it would take too long, or no rule exists. Quotes nothing of the text."""


def again(said: str, broken: Mismatch, wanted: chat_pb2.ResponseFormat) -> Iterator[chat_pb2.Message]:
    """The turns that ask for another answer. They describe the format, because a provider that enforces no constraint
    has not shown it to its model."""
    yield chat_pb2.Message(role=chat_pb2.ROLE_ASSISTANT, content=said[:_MOST_ANSWER])
    correction = f"That is not what was asked for: {broken.why}\nAnswer again, with nothing but {_form(wanted)}"
    yield chat_pb2.Message(role=chat_pb2.ROLE_USER, content=correction)


def _form(wanted: chat_pb2.ResponseFormat) -> str:
    match wanted.WhichOneof("constraint"):
        case "json_schema" if len(wanted.json_schema) <= _MOST_SCHEMA:
            return f"JSON that matches this JSON Schema, and no fence around it:\n{wanted.json_schema}"
        case "regex":
            return f"a text that matches this regular expression as a whole:\n{wanted.regex}"
        case "choice":
            return "one of these texts, letter for letter:\n" + "\n".join(wanted.choice.values)[:_MOST_SCHEMA]
    return "one JSON value, and no fence around it." if wanted.json_schema else "a JSON object, and no fence around it."
