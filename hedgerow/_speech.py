"""Transcripts, as plain values. Times are seconds from the beginning of the audio."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Encoding: TypeAlias = Literal["pcm_s16le", "pcm_f32le", "opus"]
Policy: TypeAlias = Literal["windows", "local-agreement"]


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """The form of live audio. The channels of PCM are interleaved; with `opus`, each block is one packet."""

    encoding: Encoding = "pcm_s16le"
    sample_rate_hz: int = 16_000  # 8,000 to 48,000; Opus is always 48,000
    channels: int = 1  # or 2


@dataclass(frozen=True, slots=True)
class Word:
    """A word and when it was said."""

    text: str  # with its punctuation, without spaces
    start_s: float
    end_s: float
    probability: float  # of the word, 0 to 1
    stability: float  # probability that the word does not change, 0 to 1; 1 for confirmed words


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """Speech began."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Partial:
    """A segment that is still being spoken. Its confirmed words never change; the others may."""

    index: int  # the segment's number, from 0
    text: str  # all of it so far
    words: tuple[Word, ...]  # the first `confirmed` words never change
    confirmed: int
    audio_s: float  # the audio that this is based on


@dataclass(frozen=True, slots=True)
class Segment:
    """A sentence of a recording, or the part of one that a pause ends; of live audio, what was said between pauses."""

    index: int  # from 0
    start_s: float
    end_s: float
    text: str
    words: tuple[Word, ...]  # empty for a recording, unless asked for
    language: str = ""  # ISO 639-1; detected if none was requested


@dataclass(frozen=True, slots=True)
class Behind:
    """The transcription is behind the speaker; sent once a second while it is."""

    behind_s: float


@dataclass(frozen=True, slots=True)
class SpeechSummary:
    """The end of live audio, and its summary. Always the last event."""

    text: str  # of all segments
    audio_s: float
    speech_s: float  # how much of it was speech
    busy_s: float  # how long the model worked on it
    model: str
    language: str = ""  # ISO 639-1; detected if none was requested. Empty without speech


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording, decoded."""

    format: str  # for example `WAV`, `FLAC`, `MP3`, `OGG/OPUS`
    sample_rate_hz: int  # in the file
    channels: int  # in the file
    duration_s: float


@dataclass(frozen=True, slots=True)
class Transcription:
    """The transcript of a recording, with a report."""

    text: str
    segments: tuple[Segment, ...]
    audio_s: float
    speech_s: float  # how much of it was speech
    busy_s: float  # how long the model worked on it
    model: str
    recording: Recording | None  # None where the service did not say
    language: str = ""  # ISO 639-1; detected if none was requested. Empty without speech


@dataclass(frozen=True, slots=True)
class SpeechModel:
    """The model, and how busy it is."""

    name: str  # for example `demo-whisper`
    device: str  # for example `cpu`, `cuda`
    compute_type: str  # for example `int8`
    streams: int  # open now
    max_streams: int
    load: float  # the share of the last seconds in which the model worked, 0 to 1


Heard: TypeAlias = SpeechStarted | Partial | Segment | Behind | SpeechSummary
