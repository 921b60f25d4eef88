"""What happens in a spoken conversation. Each event has its turn: what was said until a pause, and its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hedgerow._errors import HedgerowError
from hedgerow._events import Event
from hedgerow._speech import SpeechStarted


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A turn's answer was cut off, because somebody spoke again or asked for it."""

    text: str  # what had been said of it; it stays in the conversation


@dataclass(frozen=True, slots=True)
class TurnFailed:
    """A turn has no answer, and why. The conversation goes on."""

    error: HedgerowError


ConversationEvent: TypeAlias = SpeechStarted | Event | Interrupted | TurnFailed
