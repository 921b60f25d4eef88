"""Whether a text is what a response format asks for. Of each kind a function, but for a grammar: what a stranger's
takes cannot be told beforehand nor ended in a thread, so its engine alone holds an answer to it (ADR 24)."""

from __future__ import annotations

from typing import Any

from hedgerow.chat.v1 import chat_pb2
from services.gateway.output_validation.verdict import Mismatch, Unchecked
from services.runtime import strict_json

_MOST_CHARACTERS = 1_000_000  # of an answer that is looked at
_NO_JSON = "it is no JSON"


def mismatch(wanted: chat_pb2.ResponseFormat, text: str, most_s: float) -> Mismatch | None:
    """Why `text` does not match; None where it does. Raises `Unchecked`. Takes about `most_s` seconds at the most."""
    if len(text) > _MOST_CHARACTERS:
        raise Unchecked(f"an answer of more than {_MOST_CHARACTERS} characters is not checked")
    match wanted.WhichOneof("constraint"):
        case "json_schema":
            return _by_schema(wanted.json_schema, text, most_s)
        case "json_object" if wanted.json_object:
            return _by_object(text)
        case "regex":
            return _by_regex(wanted.regex, text, most_s)
        case "choice" if text not in wanted.choice.values:
            return Mismatch("it is none of the choices", "it is none of the texts to choose from, letter for letter")
    return None


def _by_schema(schema: str, text: str, most_s: float) -> Mismatch | None:
    parsed = _parsed(text)
    if isinstance(parsed, Mismatch):
        return parsed
    from services.gateway.output_validation import schema as json_schema  # for whoever has one: it takes long to load

    return json_schema.mismatch(strict_json.loads(schema), parsed, most_s)


def _by_object(text: str) -> Mismatch | None:
    parsed = _parsed(text)
    if isinstance(parsed, Mismatch):
        return parsed
    return None if isinstance(parsed, dict) else Mismatch("it is no JSON object", "it is JSON, but no object")


def _by_regex(pattern: str, text: str, most_s: float) -> Mismatch | None:
    from services.gateway.output_validation.schema import expression

    try:
        if expression(pattern).fullmatch(text, timeout=most_s, concurrent=True):
            return None
    except TimeoutError:
        raise Unchecked("a regular expression took too long") from None
    return Mismatch("it does not match the regular expression", "it does not match the regular expression as a whole")


def _parsed(text: str) -> Any:
    try:
        return strict_json.loads(text)
    except ValueError as error:
        return Mismatch(_NO_JSON, f"{_NO_JSON}: {error}")
