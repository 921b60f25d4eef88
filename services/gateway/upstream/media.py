"""The services that see and hear, where there are any, and what stands before each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.gateway.policies.shared_breaker import SharedBreaker
from services.gateway.upstream.stubs import Audio, Vision


@dataclass(frozen=True, slots=True)
class Seeing:
    """The vision service: `top_k` labels of each picture, by `model`; empty is the service's default. `note` is the
    template by which a language model is told the labels; empty is an English sentence."""

    client: Vision
    breaker: SharedBreaker
    model: str = ""
    top_k: int = 1
    note: str = ""


@dataclass(frozen=True, slots=True)
class Hearing:
    """Who listens to recordings and live audio."""

    client: Audio
    breaker: SharedBreaker


@dataclass(frozen=True, slots=True)
class Media:
    """What this gateway can do with pictures and recordings; None: nothing. `sees`: whether a model, by its name, takes
    pictures as they are; without a name, whether all do."""

    seeing: Seeing | None = None
    hearing: Hearing | None = None
    sees: Callable[[str], bool] = lambda name: False
