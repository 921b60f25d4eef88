"""What a request must be for any engine. Each refusal names the field, the limit and the value."""

from __future__ import annotations

import math
from typing import Any

from services.llm.engine import Message, Request, Sampling
from services.runtime import strict_json
from services.runtime.errors import InvalidInput
from services.runtime.limits import STOP_CHARACTERS, STOPS

MAX_SALT_CHARACTERS = 64


def check(request: Request) -> None:
    """Raise InvalidInput for a request no engine should see."""
    check_messages(request.messages)
    if request.messages[-1].role != "user":
        raise InvalidInput(
            f"messages[{len(request.messages) - 1}].role", "the last one is the user's", request.messages[-1].role
        )
    _check_sampling(request.sampling)
    if len(request.cache_salt) > MAX_SALT_CHARACTERS:
        raise InvalidInput("cache_salt", f"at most {MAX_SALT_CHARACTERS} characters", len(request.cache_salt))
    if request.constraint and request.constraint.kind == "json_schema":
        read_schema(request.constraint.value)
    if request.prefix and request.constraint:  # an engine matches what it generates, not what was there before
        raise InvalidInput("prefix", "none together with response_format", f"{len(request.prefix)} characters")


def read_schema(text: str) -> dict[str, Any]:
    """A JSON Schema that can be handed on. Raises InvalidInput for text that is none."""
    try:
        schema = strict_json.loads(text)
    except ValueError as error:
        raise InvalidInput("response_format.json_schema", f"JSON ({error})", text) from None
    if not isinstance(schema, dict):
        raise InvalidInput("response_format.json_schema", "a JSON object", type(schema).__name__)
    return schema


def check_messages(messages: tuple[Message, ...]) -> None:
    """Raise InvalidInput for what is not a conversation."""
    if not messages:
        raise InvalidInput("messages", "1 or more", 0)
    for index, message in enumerate(messages):
        if not message.content:
            raise InvalidInput(f"messages[{index}].content", "1 or more characters", 0)


def _check_sampling(sampling: Sampling) -> None:
    _check_range("sampling.temperature", sampling.temperature, 0, 2, "0 to 2")
    _check_range("sampling.top_p", sampling.top_p, math.ulp(0.0), 1, "above 0 to 1")
    if sampling.max_tokens is not None and sampling.max_tokens < 1:
        raise InvalidInput("sampling.max_tokens", "1 or more", sampling.max_tokens)
    if len(sampling.stop) > STOPS:
        raise InvalidInput("sampling.stop", f"at most {STOPS}", len(sampling.stop))
    for index, stop in enumerate(sampling.stop):
        if not 1 <= len(stop) <= STOP_CHARACTERS:
            raise InvalidInput(f"sampling.stop[{index}]", f"1 to {STOP_CHARACTERS} characters", len(stop))


def _check_range(field: str, value: float | None, least: float, most: float, limit: str) -> None:
    if value is not None and not least <= value <= most:  # also refuses NaN
        raise InvalidInput(field, limit, value)
