"""The seam between the service and the speech model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from services.audio.speech import Audio, Transcript


class Recognizer(Protocol):
    """A loaded speech model. Calls block and come from a worker thread; they never touch the event loop.

    `language` is ISO 639-1; empty: the model detects it.
    """

    name: str
    translates: bool  # whether it may write English for another language
    device: str
    compute_type: str

    def transcribe_utterance(self, audio: Audio, language: str) -> Transcript:
        """The words of one utterance of at most 30 s, with times from its beginning. Silence gives no words."""
        ...

    def transcribe(
        self, recording: Audio, language: str, batch: Callable[[], int], *, translate: bool = False
    ) -> Iterator[Transcript]:
        """A whole recording, with times from its beginning. Silence is left out. Each step of the iterator is one
        bounded piece of work, with or without words. `batch`, asked before each piece, says how many windows of up to
        30 s may be decoded in it: more of them are faster together, and make others wait longer. `translate`: its words
        are English, and `language` is the one that is spoken."""
        ...
