"""Answers that are parsed: `ask(…, into=City)` asks for JSON of that type, and gives an `Answer[City]`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from hedgerow._errors import DeadlineExceeded, HedgerowError, Internal, InvalidArgument
from hedgerow._events import Answer
from hedgerow._reports import PartialAnswer
from hedgerow._shapes import Unsupported, parse, schema_of

T = TypeVar("T")
_FORMS = ("json_schema", "regex", "choice", "grammar")


def with_schema(into: Any, options: Any) -> Any:
    """The options of an ask, with the schema of what its answer is parsed into. Raises `InvalidArgument`."""
    for name in _FORMS:
        if options.get(name) is not None:
            raise _invalid(f"into: none together with {name}, got {_name(into)}")
    try:
        return {**options, "json_schema": schema_of(into)}
    except (Unsupported, TypeError) as error:  # TypeError: of what is no type, but a value
        raise _invalid(f"into: {error}") from None


def parsed(answer: Answer, into: type[T]) -> Answer[T]:
    """The answer with its value. Raises where it was cut, or is not of its type: `error.partial` has its text.

    An answer that calls tools has no value yet: `parsed` is None.
    """
    if answer.finish_reason == "tool_calls" or answer.is_fallback:
        return answer  # type: ignore[return-value]
    if not answer.complete:
        kind = DeadlineExceeded if answer.finish_reason == "budget" else Internal
        raise _failed(kind, answer, f"cut off ({answer.finish_reason}) before the {_name(into)} was whole", "FORM_CUT")
    try:
        return replace(answer, parsed=parse(into, answer.text))  # type: ignore[return-value]
    except ValueError as error:
        raise _failed(Internal, answer, f"no {_name(into)}: {error}", "FORM_BROKEN") from error


def _failed(kind: type[HedgerowError], answer: Answer, problem: str, reason: str) -> HedgerowError:
    error = kind(f"the answer is {problem}", reason=reason, trace_id=answer.trace_id)
    error.partial = PartialAnswer(answer.text, answer.reasoning, answer.stages, answer.trace_id)
    error.decisions = answer.decisions
    return error


def _name(into: Any) -> str:
    return getattr(into, "__name__", repr(into))


def _invalid(message: str) -> InvalidArgument:
    return InvalidArgument(message, reason="INVALID_INPUT", metadata={"field": "into"})
