"""A caller's own words, on their way to a model: without the fields for which the request stands, because a policy has
changed them."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from services.gateway.answer.draft import Draft

CONVERSATION = ("messages", "system")
FORM = ("response_format", "structured_outputs", "output_config.format")  # in every API's words


def own_words(draft: Draft, changed: Collection[str]) -> chat_pb2.Original | None:
    """None where the request has none. `changed`: fields that are to be left out, and of an object `object.field`."""
    request = draft.question.request
    if not request.HasField("original"):
        return None
    stale = {*changed, *(CONVERSATION if draft.altered or "messages" in changed else ())}
    if not stale:
        return request.original
    own = chat_pb2.Original()
    own.CopyFrom(request.original)
    kept = _without(json.loads(own.body), stale)
    own.body = json.dumps(kept, separators=(",", ":")).encode()
    return own


def _without(body: dict[str, Any], stale: Collection[str]) -> dict[str, Any]:
    kept = {name: given for name, given in body.items() if name not in stale}
    for name, _, field in (place.partition(".") for place in stale):
        if field and isinstance(given := kept.get(name), dict):
            kept[name] = {each: said for each, said in given.items() if each != field}
            if not kept[name]:
                del kept[name]
    return kept
