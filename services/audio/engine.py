"""The seam between the service and the speech model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from services.audio.speech import Audio, Word


class Recognizer(Protocol):
    """A loaded speech model. Calls block and come from one worker thread; they never touch the event loop."""

    name: str
    device: str
    compute_type: str

    def transcribe_utterance(self, audio: Audio, language: str, before: str = "") -> list[Word]:
        """The words of one utterance of at most 30 s, with times from its beginning. `before` is what was said just
        before, as context; empty: none. Silence gives no words."""
        ...

    def transcribe(self, audio: Audio, language: str) -> Iterator[list[Word]]:
        """A whole recording: the words of one segment after the other, with times from its beginning. Silence is left
        out. Each step of the iterator is one bounded piece of work."""
        ...

    def speech_s(self, audio: Audio) -> float:
        """How much of the audio is speech, in seconds."""
        ...
