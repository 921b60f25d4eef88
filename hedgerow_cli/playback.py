"""A recording at its own speed, as a microphone would have given it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from hedgerow import AudioFormat, InvalidArgument

BLOCK_S = 0.1
_RATES = range(8_000, 48_001)  # what the services take of live audio, in Hz


class _Forward(soundfile.SoundFile):  # type: ignore[misc, unused-ignore]
    """A file that is only read onwards. `soundfile` seeks after each read where it can, which spoils MP3: a frame of it
    begins in the ones before."""

    def seekable(self) -> bool:
        return False


class Playback:
    """A recording that is open. `format` is the form of its blocks: mono, at the file's rate."""

    def __init__(self, file: Any):
        self._file = file
        self.format = AudioFormat("pcm_s16le", file.samplerate)

    async def blocks(self) -> AsyncGenerator[bytes, None]:
        """Blocks of a tenth of a second, each when its last sample would have been spoken."""
        loop = asyncio.get_running_loop()
        began, played = loop.time(), 0
        while len(samples := self._file.read(round(BLOCK_S * self._file.samplerate), "float32", always_2d=True)):
            played += len(samples)
            await asyncio.sleep(began + played / self._file.samplerate - loop.time())
            yield as_pcm(samples)


@contextmanager
def opened(path: Path) -> Iterator[Playback]:
    """Open a WAV, FLAC, MP3 or Ogg file; `InvalidArgument` names one that cannot be played."""
    try:
        raw = open(path, "rb")  # noqa: SIM115  # errors of the block are not the file's
    except OSError as error:
        raise _refused(f"a file that can be read, got {path} ({error.strerror})") from None
    if not raw.seekable():
        raw.close()
        raise _refused(f"a file to play, got {path}, a pipe")
    try:
        with raw, _Forward(raw) as file:
            if file.samplerate not in _RATES:
                limit = f"{_RATES[0]} to {_RATES[-1]} Hz"
                raise _refused(f"a sample rate of {limit} to play it, got {file.samplerate} ({path})")
            yield Playback(file)
    except soundfile.LibsndfileError as error:
        raise _refused(f"WAV, FLAC, MP3 or Ogg, got {path} ({error.error_string.rstrip('.')})") from None


def as_pcm(samples: np.ndarray[Any, np.dtype[np.float32]]) -> bytes:
    """Samples of shape (frames, channels), -1 to 1, as mono 16-bit integers."""
    mono = np.clip(np.rint(samples.mean(axis=1) * 32_768), -32_768, 32_767)
    return bytes(mono.astype("<i2").tobytes())


def _refused(problem: str) -> InvalidArgument:
    return InvalidArgument(f"audio: {problem}", reason="INVALID_INPUT", metadata={"field": "audio"})
