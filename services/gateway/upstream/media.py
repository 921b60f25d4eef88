"""The services that see and hear, where there are any, and what stands before each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import grpc

from services.gateway.config import GatewaySettings
from services.gateway.policies.shared_breaker import SharedBreaker
from services.gateway.upstream.stubs import AudioCalls, VisionCalls


@dataclass(frozen=True, slots=True)
class Seeing:
    """The vision service: `top_k` labels of each picture, by `model`; empty is the service's default. `note`: the
    template of the text with the labels for a language model; empty: an English sentence."""

    client: VisionCalls
    breaker: SharedBreaker
    model: str = ""
    top_k: int = 1
    note: str = ""


@dataclass(frozen=True, slots=True)
class Hearing:
    """The audio service, for recordings and live audio."""

    client: AudioCalls
    breaker: SharedBreaker


@dataclass(frozen=True, slots=True)
class Media:
    """What this gateway can do with pictures and recordings; None: nothing. `sees`: whether a model, by its name, takes
    pictures as they are; without a name, whether all do."""

    seeing: Seeing | None = None
    hearing: Hearing | None = None
    sees: Callable[[str], bool] = lambda name: False


def make_media(
    settings: GatewaySettings,
    channels: Mapping[str, grpc.aio.Channel],
    breaker: Callable[[Literal["vision", "audio"]], SharedBreaker],
) -> Media:
    """With the services that the settings name, reached by `channels`."""
    seeing = hearing = None
    if settings.vision_address:
        client = VisionCalls(channels[settings.vision_address])
        top_k, note = settings.labels_per_image, settings.image_note
        seeing = Seeing(client, breaker("vision"), settings.vision_model, top_k, note)
    if settings.audio_address:
        hearing = Hearing(AudioCalls(channels[settings.audio_address]), breaker("audio"))
    return Media(seeing, hearing)
