"""The audio service's readers of a speech model's output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.audio.sentences import TranscriptSentences
from services.audio.speech import Word
from tests.unit.linear.reader import Reader


def _segments(pieces: Sequence[str]) -> None:
    sentences, found = TranscriptSentences(), list[object]()
    for at, piece in enumerate(pieces):
        found += sentences.push([Word(piece, float(at), at + 0.5)])
    assert [*found, *sentences.end()]


STREAMED: Mapping[str, Reader] = {"segments of recordings": _segments}
