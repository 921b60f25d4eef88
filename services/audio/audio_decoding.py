"""Recordings: a file's bytes → 16 kHz mono float32.

The format is detected from the bytes, never from a name, and only its own demuxer is tried (`audio_formats`), without
tags (`audio_essence`). FFmpeg (through PyAV) decodes: it reads all formats and also Opus packets, does not write about
broken input (libsndfile's MP3 decoder writes to standard error), and is three times as fast for Opus. The length in a
header can only refuse a file; decoded samples are counted, in pieces of about a second.

Detected damage is refused: a WAV that is shorter than its header says, an Ogg file that ends within a page, a FLAC or
Ogg file with lost frames or pages (FFmpeg skips those with a wrong checksum, so the audio is shorter than declared). A
WAV that was written to a pipe (length 0 or the largest possible), an MP3 and a WebM, which need not declare a length,
end at their last byte. Bytes of an MP3 that are no frame, such as a tag behind its frames, are left out, as players do.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import av
import av.error
import numpy as np

from services.audio import audio_formats
from services.audio.frames import OPUS_RATE
from services.audio.resample import Resampler
from services.audio.speech import RATE, Audio
from services.runtime.errors import InvalidInput

MIN_RATE, MAX_RATE = 8_000, 48_000
# PyAV 18 reads beyond its array of planes if a frame has 8 or more: planar formats are accepted with 2 channels.
_MOST_PLANES = 7
_MAX_PACKETS = 2_000  # in one step: those of an MP3 that are no frames take 6 µs each
_SPARE_S = 2.0  # space for samples that a resampler adds
_SCALE = {"u8": 2.0**7, "s16": 2.0**15, "s32": 2.0**31, "flt": 1.0, "dbl": 1.0}


@dataclass(frozen=True, slots=True)
class RecordingLimits:
    """Limits of a recording. `max_pcm_bytes`: as 32-bit floats of all channels at the file's rate."""

    max_duration_s: float
    max_pcm_bytes: int


@dataclass(frozen=True, slots=True)
class DecodedRecording:
    """A decoded recording. `format`, `rate_hz` and `channels` are the file's; `audio` is at 16 kHz, mono."""

    format: str
    rate_hz: int
    channels: int
    audio: Audio

    @property
    def duration_s(self) -> float:
        return len(self.audio) / RATE


class Decoding:
    """The decoding of one file: call `step` until it returns False, then `recording`. Both block for a short time.

    Raises InvalidInput, with field, limit and value, for data that is no recording or exceeds a limit.
    """

    def __init__(self, data: bytes, limits: RecordingLimits):
        self._limits = limits
        self._form = audio_formats.find(data)
        data = self._form.essence(data)
        # FFmpeg decodes what it does not know the size of while it opens a file. A cover picture of 0.4 MB took 400 MB.
        options = {"codec_whitelist": ",".join(self._form.codecs)}
        with _readable(self._form.name):
            self._container: Any = av.open(io.BytesIO(data), format=self._form.demuxer, options=options)
        self._stream = self._audio_stream()
        context = self._stream.codec_context
        self.rate_hz, self.channels = int(context.sample_rate), int(context.channels)
        self._declared_s = self._declared()
        self._check_header()
        self._packets = self._decoded()
        self._resampler = Resampler(self.rate_hz, "data")
        # Unwritten memory is not allocated, so an array for the longest recording costs nothing.
        longest_s = min(limits.max_duration_s, limits.max_pcm_bytes / (4 * self.rate_hz * self.channels))
        self._audio: Audio = np.empty(round((longest_s + _SPARE_S) * RATE), np.float32)
        self._written = self._samples = 0  # at 16 kHz; at the file's rate

    def _audio_stream(self) -> Any:
        streams = self._container.streams.audio
        context = streams[0].codec_context if streams else None  # None: no stream that FFmpeg knows
        codec = context.name if context else "none that is known"
        if (tracks := len(self._container.streams)) > self._form.max_tracks:
            raise InvalidInput("data", f"{self._form.name} with a track of sound alone", f"{tracks} tracks")
        if codec not in self._form.codecs:
            raise InvalidInput("data", f"{self._form.name} with {self._form.samples}", codec)
        return streams[0]

    def _declared(self) -> float:
        """How long the file says it is, in seconds; 0 where it does not. Of Opus, without the beginning that is decoded
        and not played (RFC 7845, 4.2): often 6.5 ms, and 80 ms where a file was cut. Ogg says when its last page ends:
        a recording of a running stream begins later than 0 (RFC 7845, 4.4)."""
        if not self._stream.duration:
            return 0.0
        if self._form.demuxer != "ogg":
            return float(self._stream.duration * self._stream.time_base)
        length_s = float((self._stream.duration - (self._stream.start_time or 0)) * self._stream.time_base)
        head = self._stream.codec_context.extradata or b""
        return length_s - int.from_bytes(head[10:12], "little") / OPUS_RATE

    def _decoded(self) -> Iterator[Sequence[Any]]:
        """The frames of each packet."""
        for packet in self._container.demux(self._stream):
            try:
                yield packet.decode()
            except av.error.InvalidDataError:
                if self._form.demuxer != "mp3":
                    raise
                yield ()

    def _check_header(self) -> None:
        if not MIN_RATE <= self.rate_hz <= MAX_RATE:
            raise InvalidInput("data", f"a sample rate of {MIN_RATE} to {MAX_RATE} Hz", f"{self.rate_hz} Hz")
        most = self._form.max_channels
        if not 1 <= self.channels <= most:
            raise InvalidInput("data", f"{self._form.name} with 1 to {most} channels", self.channels)
        if self._form.demuxer != "mp3":  # its length is only a guess
            self._check_length(self._declared_s)

    def _check_length(self, duration_s: float) -> None:
        if duration_s > self._limits.max_duration_s:
            raise InvalidInput("data", f"at most {self._limits.max_duration_s:g} s", f"{duration_s:.1f} s")
        pcm_bytes = int(duration_s * self.rate_hz) * self.channels * 4
        if pcm_bytes > self._limits.max_pcm_bytes:
            raise InvalidInput("data", f"at most {self._limits.max_pcm_bytes} bytes of PCM", f"{pcm_bytes} bytes")

    def step(self) -> bool:
        """Decode about a second, or some packets that have none. False: there is no more."""
        samples: list[Audio] = []
        count, more = 0, False
        with _readable(self._form.name):
            for number, frames in enumerate(self._packets, 1):
                for frame in frames:
                    self._check_frame(frame)
                    samples.append(_mono(frame))
                    count += frame.samples
                if more := count >= self.rate_hz or number >= _MAX_PACKETS:
                    break
        self._samples += count
        self._check_length(self.decoded_s)
        if samples:
            self._write(self._resampler.push(np.concatenate(samples)))
        return more

    def _write(self, audio: Audio) -> None:
        self._audio[self._written : self._written + len(audio)] = audio
        self._written += len(audio)

    @property
    def decoded_s(self) -> float:
        """Seconds decoded so far."""
        return self._samples / self.rate_hz

    def _check_frame(self, frame: Any) -> None:
        """Refuse a frame that differs from the stream's format, or has more planes than PyAV can read."""
        if (frame.sample_rate, frame.layout.nb_channels) != (self.rate_hz, self.channels):
            form = f"{frame.sample_rate} Hz, {frame.layout.nb_channels} channels"
            raise InvalidInput("data", f"{self.rate_hz} Hz, {self.channels} channels throughout", form)
        if frame.format.is_planar and self.channels > _MOST_PLANES:
            raise InvalidInput("data", f"{self._form.name} with 1 to {_MOST_PLANES} channels", self.channels)

    def recording(self) -> DecodedRecording:
        """The decoded audio. Call it once."""
        self.close()
        if not self._samples:
            raise InvalidInput("data", "at least one sample of audio", "none")
        if self.decoded_s < self._declared_s - self._form.gap_s:
            raise InvalidInput("data", f"{self._declared_s:.2f} s, as it says of itself", f"{self.decoded_s:.2f} s")
        self._write(self._resampler.flush())
        return DecodedRecording(self._form.name, self.rate_hz, self.channels, self._audio[: self._written])

    def close(self) -> None:
        """Close the file."""
        self._container.close()


def _mono(frame: Any) -> Audio:
    """The mean of a frame's channels, -1 to 1, shape (samples,)."""
    raw, packed = frame.to_ndarray(), not frame.format.is_planar
    channels = raw.reshape(-1, frame.layout.nb_channels) if packed else raw.T
    name = frame.format.name.removesuffix("p")
    with np.errstate(over="ignore"):
        samples = channels.astype(np.float32)
    if name == "u8":
        samples -= 128.0
    if _SCALE[name] != 1.0:
        samples /= np.float32(_SCALE[name])
    with np.errstate(over="ignore", invalid="ignore"):  # values that are not finite are refused later
        mono: Audio = samples.mean(axis=1, dtype=np.float32) if samples.shape[1] > 1 else samples[:, 0]
    return mono


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Raise InvalidInput for audio that FFmpeg cannot read. PyAV's errors derive from built-in ones, and some are plain
    built-in errors."""
    try:
        yield
    except (av.error.FFmpegError, ValueError, EOFError, IndexError, OverflowError):
        raise InvalidInput("data", f"a readable {name} file", "one damaged or cut off") from None
