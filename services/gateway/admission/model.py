"""The model that a request names: one of the mesh's, or the name of a tier in the place of one."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Protocol

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.errors import ModelUnknown

# Names that may stand in the place of a model's.
TIERS = {
    "auto": pb.TIER_UNSPECIFIED,
    "fast": pb.TIER_FAST,
    "balanced": pb.TIER_BALANCED,
    "quality": pb.TIER_QUALITY,
}


class Names(Container[str], Iterable[str], Protocol):
    """Of models."""


def unknown(name: str, known: Iterable[str]) -> ModelUnknown:
    """The error for a name that no model has, with those that there are."""
    return ModelUnknown(name, ", ".join([*sorted(known), *TIERS]))


def read_model(request: pb.GenerateRequest, known: Names) -> None:
    """Have a tier's name stand for the tier, in place; `auto` stands for no model. Raises `ModelUnknown`."""
    if not request.model or request.model in known:
        return
    if request.model not in TIERS:
        raise unknown(request.model, known)
    request.tier = TIERS[request.model] or request.tier
    request.model = ""
