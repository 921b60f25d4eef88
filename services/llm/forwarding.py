"""A caller's own words for a provider behind the same API: what policies decide is changed in them, nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from services.llm.engine import Original, Request
from services.runtime.errors import InvalidInput

_OURS = ("hedgerow", "model", "stream", "stream_options")
# What a policy may have put in the place of the caller's.
_OF_POLICIES = ("messages", "system", "tools", "tool_choice", "logprobs", "top_logprobs")


def forwarded(request: Request, original: Original, translate: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of what is posted, without the model and how it is streamed. `translate` makes a body of the request,
    whose fields stand for those that the caller's words lack. Raises InvalidInput for what is no object."""
    own = {name: given for name, given in _object(original.body).items() if name not in _OURS}
    if _lacks(own, request):
        translated = translate()
        own = {**{name: translated[name] for name in _OF_POLICIES if name in translated}, **own}
    return own


def asked_of_stream(original: Original) -> dict[str, Any]:
    """Its `stream_options`."""
    return _object(original.body).get("stream_options") or {}


def _lacks(own: Mapping[str, Any], request: Request) -> bool:
    """Whether the request says what the caller's words do not."""
    return (
        "messages" not in own
        or ("tools" not in own and bool(request.tools))
        or ("tool_choice" not in own and request.tool_choice.mode != "auto")
        or ("logprobs" not in own and request.sampling.top_logprobs is not None)
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise InvalidInput("original.body", "a JSON object", f"{len(body)} bytes")
    return given
