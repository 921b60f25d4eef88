"""Live audio: a client's messages → 16 kHz mono float32."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import av
import av.error
import numpy as np

from services.audio.resample import Resampler
from services.audio.speech import Audio
from services.runtime.errors import InvalidInput
from services.runtime.limits import SPEECH_BYTES

MAX_PACKET_BYTES = 61_440  # of Opus: 48 frames of 1,275 bytes and what describes them (RFC 6716, 3.2)
OPUS_RATE = 48_000  # what Opus decodes to, whatever went in
_NOTHING: Audio = np.empty(0, np.float32)


class Encoding(Enum):
    """How samples are written."""

    S16 = "<i2"
    F32 = "<f4"
    OPUS = "opus"


@dataclass(frozen=True, slots=True)
class AudioForm:
    """The form of live audio: 8,000 to 48,000 Hz, 1 or 2 channels, interleaved."""

    encoding: Encoding
    rate_hz: int
    channels: int


def open_frames(form: AudioForm) -> Frames:
    """A decoder of one stream's messages, in order. `push`: the audio of the next message, as far as it is
    complete; raises InvalidInput naming `audio`. `flush`: the rest; a sample that is not complete is left out."""
    return OpusPackets() if form.encoding is Encoding.OPUS else Pcm(form)


class Pcm:
    """Samples as they are. A message may end anywhere, in the middle of a sample too."""

    def __init__(self, form: AudioForm):
        self._form, self._type = form, np.dtype(form.encoding.value)
        self._size = self._type.itemsize * form.channels
        self._rest = b""
        self._resampler = Resampler(form.rate_hz, "audio", live=True)

    def push(self, data: bytes) -> Audio:
        _check_size(data, SPEECH_BYTES)
        data = self._rest + data
        whole = len(data) - len(data) % self._size
        self._rest = data[whole:]
        samples = np.frombuffer(data[:whole], self._type).reshape(-1, self._form.channels).astype(np.float32)
        if self._form.encoding is Encoding.S16:
            samples /= 32_768.0
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused next
            mono = samples.mean(axis=1, dtype=np.float32) if self._form.channels > 1 else samples[:, 0]
        return self._resampler.push(mono)

    def flush(self) -> Audio:
        return self._resampler.flush()


class OpusPackets:
    """Opus packets, one in each message. The decoder mixes stereo packets to mono."""

    def __init__(self) -> None:
        self._decoder: Any = av.CodecContext.create("libopus", "r")
        self._decoder.sample_rate, self._decoder.layout = OPUS_RATE, "mono"
        self._resampler = Resampler(OPUS_RATE, "audio", live=True)

    def push(self, data: bytes) -> Audio:
        if not data:  # would end the stream
            return _NOTHING
        _check_size(data, MAX_PACKET_BYTES)
        try:
            frames = self._decoder.decode(av.Packet(data))
        except (av.error.FFmpegError, ValueError, EOFError):
            raise InvalidInput("audio", "one Opus packet (RFC 6716)", f"{len(data)} bytes that are none") from None
        samples: list[Audio] = [frame.to_ndarray()[0].astype(np.float32) / 32_768 for frame in frames]
        return self._resampler.push(np.concatenate(samples)) if samples else _NOTHING

    def flush(self) -> Audio:
        return self._resampler.flush()


def _check_size(data: bytes, limit: int) -> None:
    if len(data) > limit:
        raise InvalidInput("audio", f"at most {limit} bytes in a message", f"{len(data)} bytes")


Frames = Pcm | OpusPackets
