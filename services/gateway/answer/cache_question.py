"""The question as the cache keys it: everything that may change an answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.prompt_builder import Asked
from services.gateway.cache_eligibility.choice import ANY, Choice

# What a caller may say of a request that no answer depends on.
_OMITS = "untranslated: omit"
_OF_NO_EFFECT = frozenset({"metadata", "prompt_cache_key", "safety_identifier", "store", "user"})


def cache_question(
    request: pb.GenerateRequest,
    asked: Asked,
    tenant: str,
    hits: Choice = ANY,
    identity: str = "",
    *,
    omits: bool = False,
) -> cache_pb2.Question:
    """The question as the cache keys it. `identity`: of the models that may answer it; `omits`: whether fields are left
    out that the model's API does not have, so that an answer without them is not given to a request that refuses that.
    """
    named = f"model:{request.model}" if request.model else ""
    return cache_pb2.Question(
        tenant=tenant,
        model_class=named or f"tier:{pb.Tier.Name(request.tier).removeprefix('TIER_').lower()}",
        messages=asked.messages,
        sampling=request.sampling if request.HasField("sampling") else None,
        response_format=request.response_format if request.HasField("response_format") else None,
        attachments=[
            *asked.attachments(),
            *_own_words(request.original),
            *_digest(identity),
            *_digest(_OMITS if omits else ""),
        ],
        category=hits.category,
        exact_only=hits.hits == "exact",
        end_user=_whose(request.end_user) if hits.of_user else "",
    )


def _whose(names: Iterable[str]) -> str:
    """A digest of an end user: the names themselves are kept nowhere."""
    return hashlib.sha256(json.dumps(["end user", *names]).encode()).hexdigest()


def _own_words(original: chat_pb2.Original) -> list[str]:
    """A digest of what a caller has written beside the fields that the question has."""
    told = {place: given for place, given in original.untranslated.items() if place not in _OF_NO_EFFECT}
    if not (told or original.headers):
        return []
    words = json.dumps([sorted(told.items()), sorted(original.headers.items())])
    return [hashlib.sha256(words.encode()).hexdigest()]


def _digest(identity: str) -> list[str]:
    return [hashlib.sha256(f"identity: {identity}".encode()).hexdigest()] if identity else []
