"""The language of a stream: the one asked for, or the one that the model detects as it hears more."""

from __future__ import annotations

from services.audio.speech import Transcript

_SURE, _SURE_AFTER_S = 0.5, 3.0  # probability, and speech in seconds: less of it is often mistaken
_LIKELY, _LIKELY_AFTER_S = 0.8, 2.0  # either is enough for words to be shown


class StreamLanguage:
    """`code` is the language so far, empty before anything was heard. `settled`: words may be shown. Until then they
    would often be another language's, and confirmed words stay."""

    def __init__(self, asked: str):
        self.code = asked
        self.settled = self._sure = bool(asked)

    @property
    def wanted(self) -> str:
        """The language to transcribe the next audio in; empty: detect it."""
        return self.code if self._sure else ""

    def observe(self, found: Transcript, audio_s: float) -> None:
        """The model has transcribed so much audio."""
        if self._sure or not found.language:
            return
        self.code = found.language
        self.settled |= found.certainty >= _LIKELY or audio_s >= _LIKELY_AFTER_S
        self._sure = found.certainty >= _SURE and audio_s >= _SURE_AFTER_S
