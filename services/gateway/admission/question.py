"""A request that may be served: its model, what validation has found out about it, and estimates of its tokens."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission import tools as toolbox
from services.gateway.admission.effective import EffectiveSettings
from services.gateway.errors import ModelUnknown
from services.gateway.labels import Bypassed
from services.gateway.prompt import window
from services.gateway.settings.permissions import is_plain_text
from services.gateway.upstream.media import AudioBackend, VisionBackend

# Names that may stand in the place of a model's.
TIERS = {"auto": pb.TIER_UNSPECIFIED, "fast": pb.TIER_FAST, "balanced": pb.TIER_BALANCED, "quality": pb.TIER_QUALITY}
_TOKENS_PER_S = 10
_PCM_BYTES_PER_S, _PACKED_BYTES_PER_S = 32_000, 4_000  # of 16 kHz in a WAV file, and of what is packed as speech is
Recording = Literal["", "context", "question"]
BYTES_PER_TOKEN = 4  # of UTF-8, in English; the engine's own count is the truth


class ModelNames(Container[str], Iterable[str], Protocol):
    """The names of models."""


def unknown(name: str, known: Iterable[str]) -> ModelUnknown:
    """The error for a name that no model has, with those that there are."""
    return ModelUnknown(name, ", ".join([*sorted(known), *TIERS]))


def read_model(request: pb.GenerateRequest, known: ModelNames) -> None:
    """Have a tier's name stand for the tier, in place; `auto` stands for no model. Raises `ModelUnknown`."""
    if not request.model or request.model in known:
        return
    if request.model not in TIERS:
        raise unknown(request.model, known)
    request.tier = TIERS[request.model] or request.tier
    request.model = ""


def estimated_recording_tokens(file: bytes) -> int:
    """An estimate by the length in bytes. It is reserved at first, and charged where the client leaves before the
    length in seconds is known."""
    return recording_tokens(len(file) / (_PCM_BYTES_PER_S if file.startswith(b"RIFF") else _PACKED_BYTES_PER_S))


def recording_tokens(seconds: float) -> int:
    """The tokens that `seconds` of a recording count as."""
    return math.ceil(seconds * _TOKENS_PER_S)


@dataclass(frozen=True)
class Question:
    """A validated request: it is within its limits, and the services that it needs are configured."""

    request: pb.GenerateRequest
    recording: Recording = ""
    prompt_tokens: int = 0  # an estimate, of what is written
    vision: VisionBackend | None = None  # where there are pictures to see
    audio: AudioBackend | None = None  # where there is a recording to hear
    pixels: bool = False  # whether a model gets the pictures as they are
    settings: EffectiveSettings = field(default_factory=EffectiveSettings)
    _found: list[Bypassed | None] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def most_bytes(self) -> int:
        """An upper bound of the text's bytes."""
        return (self.prompt_tokens + 1) * BYTES_PER_TOKEN

    @property
    def shareable(self) -> bool:
        """Whether its answer may be another's, of an equal question: as text is, and calls of tools are not,
        nor what they said."""
        return self.unshared is None

    @property
    def unshared(self) -> Bypassed | None:
        """Why its answer may not be another's. It is found out once. In Python 3.11 `cached_property` has one lock for
        all questions: the event loop would wait for the thread in which a large one is checked."""
        if not self._found:
            self._found.append(self._find_unshared())
        return self._found[0]

    def _find_unshared(self) -> Bypassed | None:
        request = self.request
        if request.cache.bypass:
            return Bypassed.REQUEST
        if request.tools or request.mesh_tools or any(map(_is_of_tools, request.messages)):
            return Bypassed.TOOLS
        if "tools[0]" in request.original.untranslated:  # of a kind that a provider alone knows
            return Bypassed.TOOLS
        if not is_plain_text(request.original):
            return Bypassed.PROVIDER
        if request.prefix:
            return Bypassed.PREFIX
        return Bypassed.LOGPROBS if request.sampling.HasField("top_logprobs") else None


def _is_of_tools(message: chat_pb2.Message) -> bool:
    return bool(message.tool_calls) or message.role == chat_pb2.ROLE_TOOL


def recording_is(request: pb.GenerateRequest) -> Recording:
    """The use of the request's recording; empty where it has none."""
    if not request.HasField("audio"):
        return ""
    written = bool(request.messages) and request.messages[-1].role == chat_pb2.ROLE_USER
    return "context" if written else "question"


def prompt_tokens(messages: Iterable[chat_pb2.Message], tools: Iterable[chat_pb2.Tool] = ()) -> int:
    """An estimate."""
    return (window.size(messages) + toolbox.size(tools)) // BYTES_PER_TOKEN
