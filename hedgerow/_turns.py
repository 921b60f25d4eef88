"""Events of a spoken conversation. Each has its turn: the words until a pause, and their answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hedgerow._errors import HedgerowError
from hedgerow._events import Event
from hedgerow._speech import SpeechStarted


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A turn's answer was cut off, because of new speech or a request."""

    text: str  # what had been said of it; it stays in the conversation


@dataclass(frozen=True, slots=True)
class TurnFailed:
    """A turn has no answer, and why. The conversation goes on."""

    error: HedgerowError


ConversationEvent: TypeAlias = SpeechStarted | Event | Interrupted | TurnFailed
