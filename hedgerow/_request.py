"""Options to protos. Refuses what can never work before it is sent; all else is for the gateway to judge."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from google.protobuf.message import Message as Proto

from hedgerow._errors import InvalidArgument, invalid
from hedgerow._options import Message, Messages
from hedgerow.channel import MAX_MESSAGE_BYTES
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb

_ROLES = {"system": chat_pb2.ROLE_SYSTEM, "user": chat_pb2.ROLE_USER, "assistant": chat_pb2.ROLE_ASSISTANT}
_TIERS = {"fast": pb.TIER_FAST, "balanced": pb.TIER_BALANCED, "quality": pb.TIER_QUALITY}
_CACHE = {"use": False, "bypass": True}


def generate_request(
    messages: Messages,
    *,
    system: str | None = None,
    tier: str | None = None,
    model: str | None = None,
    budget_ms: int | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    stop: str | Sequence[str] = (),
    seed: int | None = None,
    json_schema: str | Mapping[str, Any] | None = None,
    regex: str | None = None,
    cache: str = "use",
    min_similarity: float | None = None,
    first_token_budget_ms: int | None = None,
    realtime: bool = False,
    attempt: int = 0,
    single_attempt: bool = False,
) -> pb.GenerateRequest:
    """A request, or `InvalidArgument`."""
    if json_schema is not None and regex is not None:
        raise invalid("response_format", "one of json_schema and regex", "both")
    request = pb.GenerateRequest(tier=_TIERS[_one_of("tier", tier, _TIERS)] if tier else None)
    for index, message in enumerate(_turns(messages, system)):
        role = _ROLES[_one_of(f"messages[{index}].role", message.role, _ROLES)]
        _set(request.messages.add(role=role), f"messages[{index}].", content=message.content)
    _set(request, "", model=model, budget_ms=budget_ms, first_token_budget_ms=first_token_budget_ms)
    _set(request, "", realtime=realtime, attempt=attempt, single_attempt=single_attempt)
    _set(request.sampling, "", max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    with _field("stop"):
        request.sampling.stop.extend([stop] if isinstance(stop, str) else stop)
    _set(request.response_format, "", json_schema=_as_json(json_schema), regex=regex)
    request.cache.bypass = _CACHE[_one_of("cache", cache, _CACHE)]
    _set(request.cache, "", min_similarity=min_similarity)
    return request


def refuse_too_large(request: Proto) -> None:
    """Raise `InvalidArgument` for a message that no gateway would take."""
    if (size := request.ByteSize()) > MAX_MESSAGE_BYTES:
        raise invalid("request", f"at most {MAX_MESSAGE_BYTES} bytes", size)


def _turns(messages: Messages, system: str | None) -> list[Message]:
    turns = [Message("system", system)] if system is not None else []
    return [*turns, *([Message("user", messages)] if isinstance(messages, str) else messages)]


def _as_json(schema: str | Mapping[str, Any] | None) -> str | None:
    return schema if schema is None or isinstance(schema, str) else json.dumps(schema)


def _one_of(field: str, value: str, allowed: Mapping[str, object]) -> str:
    if value not in allowed:
        *most, last = allowed
        raise invalid(field, f"{', '.join(most)} or {last}", value)
    return value


def _set(message: Proto, path: str, **values: object) -> None:
    """Set what is not None."""
    for name, value in values.items():
        if value is not None:
            with _field(f"{path}{name}"):
                setattr(message, name, value)


@contextmanager
def _field(name: str) -> Iterator[None]:
    """Refuses what a field cannot hold: a number too large, broken UTF-8."""
    try:
        yield
    except ValueError as error:
        raise InvalidArgument(f"{name}: {error}", reason="INVALID_INPUT", metadata={"field": name}) from None
