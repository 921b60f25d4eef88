"""A caller's own words for a provider behind the same API: what policies decide is changed in them, nothing else is.

A body is a dictionary of its fields. The long ones stay bytes as the caller wrote them (`msgspec.Raw`): no object is
made of what is in them, and they arrive as they were written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from services.llm.engine import Original, Request
from services.runtime.errors import InvalidInput, shorten

_OURS = ("hedgerow", "model", "stream")
# Fields that a policy may have put in the place of the caller's.
_OF_POLICIES = ("messages", "system", "tools", "tool_choice", "logprobs", "top_logprobs")
_CONVERSATION = ("input", "instructions")
_NO_INPUT = [{"role": "user", "content": "…"}]  # what the gateway puts in the place of none
_AS_WRITTEN = frozenset({"documents", "input", "messages", "system", "tools"})
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_OF_INPUT = re.compile(r"input\[\d+\](\.(content|output)\[\d+\])?")  # an item, or a part of one, as a whole


def encode(body: Mapping[str, Any]) -> bytes:
    """JSON of a body's fields."""
    return msgspec.json.encode(body)


def conversation(body: Mapping[str, Any]) -> list[Any]:
    """The messages of a body, which may be the caller's own."""
    messages: Any = body["messages"]
    return list(json.loads(bytes(messages)) if isinstance(messages, msgspec.Raw) else messages)


def forwarded(request: Request, original: Original, translate: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of what is posted, without the model and `stream`. `translate` makes a body of the request, whose
    fields stand for those that the caller's words lack. Raises InvalidInput for what is no object."""
    own = fields(original.body)
    if "messages" not in own or _lacks(own, request):
        translated = translate()
        own = {**{name: translated[name] for name in _OF_POLICIES if name in translated}, **own}
    return own


def forwarded_response(
    request: Request, original: Original, translate: Callable[[], Mapping[str, Any]]
) -> dict[str, Any]:
    """The body to forward of a request for Responses, with the stream's options. Raises InvalidInput also for an item
    that cannot be translated, if a policy has changed the conversation."""
    own = fields(original.body)
    if "input" not in own:
        _check_input(original)
    translated = dict(translate())
    if "input" in own:
        translated = {name: given for name, given in translated.items() if name not in _CONVERSATION}
    elif translated["input"] == _NO_INPUT:
        del translated["input"]
    included, wanted = own.get("include") or [], translated.pop("include", [])  # log-probabilities
    if own.get("top_logprobs") is not None or any(each in included for each in wanted):
        translated.pop("top_logprobs", None)  # the caller has said what is wanted
    elif wanted:
        own["include"] = [*included, *wanted]
    return {**translated, **own}


def _check_input(original: Original) -> None:
    for place, given in original.untranslated.items():
        if place not in original.documents and _OF_INPUT.fullmatch(place):
            changes = "guard, prompt compression, system prompt, tools"
            limit = f"none of its kind where the gateway changes the conversation ({changes})"
            raise InvalidInput(place, limit, shorten(given))


def _lacks(own: Mapping[str, Any], request: Request) -> bool:
    """Whether the request says what the caller's words do not."""
    return (
        ("tools" not in own and bool(request.tools))
        or ("tool_choice" not in own and request.tool_choice.mode != "auto")
        or ("logprobs" not in own and request.sampling.top_logprobs is not None)
    )


def fields(body: bytes) -> dict[str, Any]:
    """A caller's own, without those that say how the mesh is to serve it. Raises InvalidInput for what is no object."""
    try:
        given = _FIELDS.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise InvalidInput("original.body", "a JSON object", f"{len(body)} bytes") from None
    own = {name: value for name, value in given.items() if name not in _OURS}
    return {name: value if name in _AS_WRITTEN else json.loads(bytes(value)) for name, value in own.items()}
