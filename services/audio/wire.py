"""The domain's events as messages."""

from __future__ import annotations

from collections.abc import Iterable

from hedgerow.audio.v1 import audio_pb2
from services.audio.speech import Behind, Partial, Segment, Started, StreamEvent, Word, written


def to_response(event: StreamEvent) -> audio_pb2.TranscribeStreamResponse:
    """One message of a stream."""
    match event:
        case Started():
            return audio_pb2.TranscribeStreamResponse(speech_started=audio_pb2.SpeechStarted(at_s=event.at_s))
        case Partial():
            partial = audio_pb2.Partial(
                index=event.index,
                text=written(event.words).strip(),
                words=_words(event.words),
                confirmed=event.confirmed,
                audio_s=event.audio_s,
            )
            return audio_pb2.TranscribeStreamResponse(partial=partial)
        case Segment():
            return audio_pb2.TranscribeStreamResponse(segment=segment(event))
        case Behind():
            return audio_pb2.TranscribeStreamResponse(behind=audio_pb2.Behind(behind_s=event.behind_s))


def segment(event: Segment, with_words: bool = True) -> audio_pb2.Segment:
    """A closed segment."""
    return audio_pb2.Segment(
        index=event.index,
        start_s=event.start_s,
        end_s=event.end_s,
        text=written(event.words).strip(),
        words=_words(event.words) if with_words else (),
        language=event.language,
    )


def _words(words: Iterable[Word]) -> list[audio_pb2.Word]:
    return [
        audio_pb2.Word(
            text=word.text,
            start_s=word.start_s,
            end_s=word.end_s,
            probability=word.probability,
            stability=word.stability,
        )
        for word in words
    ]
