"""The seam between the service and the speech model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from services.audio.speech import Audio, Transcript


@dataclass(frozen=True, slots=True)
class Task:
    """How a recording is transcribed. `language`: the spoken one. `translate`: into English. `prompt`: text before it,
    in the language of the transcript."""

    language: str = ""
    translate: bool = False
    prompt: str = ""


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

    def transcribe(self, recording: Audio, task: Task, batch: Callable[[], int]) -> Iterator[Transcript]:
        """A whole recording, with times from its beginning. Silence is left out. Each step of the iterator is one
        bounded piece of work, with or without words. `batch`, asked before each piece, says how many windows of up to
        30 s may be decoded in it: more of them are faster together, and make others wait longer."""
        ...
