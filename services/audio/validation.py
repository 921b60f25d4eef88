"""Validation of requests. Each refusal names the field, the limit and the value."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from hedgerow.audio.v1 import audio_pb2
from services.audio.config import AudioSettings
from services.audio.engine import Task
from services.audio.frames import OPUS_RATE, AudioForm, Encoding
from services.audio.speech import RATE
from services.runtime.errors import InvalidInput

Policy = Literal["windows", "local_agreement"]
_ENCODINGS = {
    audio_pb2.ENCODING_PCM_S16LE: Encoding.S16,
    audio_pb2.ENCODING_PCM_F32LE: Encoding.F32,
    audio_pb2.ENCODING_OPUS: Encoding.OPUS,
}
_MOST_PROMPT = 4_096  # characters, of which the model reads the last 223 tokens
_POLICIES: dict[int, Policy] = {
    audio_pb2.POLICY_WINDOWS: "windows",
    audio_pb2.POLICY_LOCAL_AGREEMENT: "local_agreement",
}


@dataclass(frozen=True, slots=True)
class StreamWanted:
    """How a stream is to be heard."""

    form: AudioForm
    language: str
    policy: Policy
    pause_ms: int


def stream_wanted(
    request: audio_pb2.TranscribeStreamRequest | None, settings: AudioSettings, languages: Collection[str]
) -> StreamWanted:
    """The options of a stream's first message, completed. Raises InvalidInput."""
    if request is None or not request.HasField("options"):
        raise InvalidInput("options", "required in the first message", "none")
    options = request.options
    if options.policy and options.policy not in _POLICIES:
        raise InvalidInput("options.policy", "POLICY_WINDOWS or POLICY_LOCAL_AGREEMENT", options.policy)
    if options.HasField("pause_ms") and not 100 <= options.pause_ms <= 5_000:
        raise InvalidInput("options.pause_ms", "100 to 5000", options.pause_ms)
    return StreamWanted(
        _form(options.format),
        language_wanted(options.language, settings, languages),
        _POLICIES.get(options.policy, settings.policy),
        options.pause_ms if options.HasField("pause_ms") else settings.pause_ms,
    )


def task_wanted(options: audio_pb2.TranscribeOptions, settings: AudioSettings, languages: Collection[str]) -> Task:
    """How a recording is to be transcribed. Raises InvalidInput."""
    if len(options.prompt) > _MOST_PROMPT:
        raise InvalidInput("options.prompt", f"at most {_MOST_PROMPT} characters", len(options.prompt))
    return Task(language_wanted(options.language, settings, languages), options.translate, options.prompt)


def language_wanted(language: str, settings: AudioSettings, languages: Collection[str]) -> str:
    """The language to transcribe; empty: the model detects it. Raises InvalidInput for one the model does not know."""
    if language and language not in languages:
        known = ", ".join(sorted(languages)[:8])
        raise InvalidInput("options.language", f"one that the model knows ({known}…)", language)
    return language or settings.language


def _form(given: audio_pb2.AudioFormat) -> AudioForm:
    encoding = _ENCODINGS.get(given.encoding)
    if encoding is None:
        limit = "ENCODING_PCM_S16LE, ENCODING_PCM_F32LE or ENCODING_OPUS"
        raise InvalidInput("options.format.encoding", limit, given.encoding)
    rate_hz = OPUS_RATE if encoding is Encoding.OPUS else given.sample_rate_hz or RATE
    if not 8_000 <= rate_hz <= 48_000:
        raise InvalidInput("options.format.sample_rate_hz", "8000 to 48000", rate_hz)
    channels = given.channels or 1
    if not 1 <= channels <= 2:
        raise InvalidInput("options.format.channels", "1 or 2", channels)
    return AudioForm(encoding, rate_hz, channels)
