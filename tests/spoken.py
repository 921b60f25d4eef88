"""Speech to listen to, with the truth about it: the sentences of `spoken.txt`, read aloud by eSpeak NG."""

from __future__ import annotations

import asyncio
import ctypes
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from functools import cache
from pathlib import Path
from typing import Any

import espeakng_loader
import numpy as np
from scipy.signal import resample_poly

from bench.speech import NOISE, RATE, Samples
from services.audio.listener import Listener, ListenerSettings
from services.audio.speech import Audio, Segment, Word
from services.audio.whisper import Whisper

# Like those that the demo Whisper was trained on, drawn from a seed that no training run used.
SENTENCES = Path(__file__).with_suffix(".txt").read_text("utf-8").splitlines()
PAUSES_S = (0.2, 1.2)
PACKET = RATE * 60 // 1000
VOICES = ("en-us", "en-gb", "en-gb-x-rp", "en-gb-scotland", "en-029")
VARIANTS = (
    *("", "+m1", "+m3", "+m4", "+m6", "+m7", "+f1", "+f2", "+f3", "+f4", "+f5", "+Alex", "+Andy", "+Annie"),
    *("+Michael", "+Denis", "+linda", "+paul", "+quincy", "+steph"),
)
_SYNCHRONOUS, _CHARS_UTF8, _PARAM_RATE, _PARAM_PITCH, _PARAM_RANGE = 2, 1, 1, 3, 4
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


def recording() -> Samples:
    """All sentences in a row, each in another voice."""
    voices, pauses = random.Random(0), random.Random(0)
    parts: list[Samples] = []
    for sentence in SENTENCES:
        parts += (_speaker().say(sentence, voices), np.zeros(int(pauses.uniform(*PAUSES_S) * RATE), np.float32))
    return _noisy(np.concatenate(parts))


def read_aloud(text: str, voice: str) -> Samples:
    """A text in a voice of eSpeak's, for example `de`."""
    return _noisy(_speaker().say(text, random.Random(0), voice))


async def heard_live(whisper: Whisper, samples: Audio, language: str, settings: ListenerSettings) -> list[Word]:
    """The words of a listener. Its runs go by the time of the audio, so that it may come as fast as it is heard."""

    async def transcribe(audio: Audio, paused: bool) -> Sequence[Word]:
        return whisper.transcribe_utterance(audio, language).words

    async def packets() -> AsyncIterator[Audio]:
        for start in range(0, len(samples), PACKET):
            yield samples[start : start + PACKET]
            for _ in range(8):  # the run that this makes due
                await asyncio.sleep(0)

    async with aclosing(Listener(transcribe, settings).listen(packets())) as events:  # type: ignore[type-var]
        return [word async for event in events if isinstance(event, Segment) for word in event.words]


def _noisy(samples: Samples) -> Samples:
    return samples + np.random.default_rng(0).normal(0, NOISE, len(samples)).astype(np.float32)


class _Speaker:
    """eSpeak NG. The library holds global state, so a process has one."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(espeakng_loader.get_library_path()))
        data = str(espeakng_loader.get_data_path()).encode()
        self._rate: int = self._library.espeak_Initialize(_SYNCHRONOUS, 0, data, 0)
        if self._rate <= 0:
            raise RuntimeError("eSpeak NG did not start: is its data installed?")
        self._chunks: list[Any] = []
        self._callback = _CALLBACK(self._collect)  # keep a reference: C holds only the pointer
        self._library.espeak_SetSynthCallback(self._callback)

    def _collect(self, wave: Any, count: int, events: Any) -> int:
        if count > 0:
            self._chunks.append(np.ctypeslib.as_array(wave, (count,)).copy())
        return 0

    def say(self, text: str, rng: random.Random, voice: str = "") -> Samples:
        """A text in an English voice drawn at random, or in `voice`, at a random speed and pitch."""
        self._chunks = []
        drawn = rng.choice(VOICES) + rng.choice(VARIANTS)
        self._library.espeak_SetVoiceByName((voice or drawn).encode())
        self._library.espeak_SetParameter(_PARAM_RATE, rng.randint(120, 210), 0)
        self._library.espeak_SetParameter(_PARAM_PITCH, rng.randint(25, 75), 0)
        self._library.espeak_SetParameter(_PARAM_RANGE, rng.randint(30, 70), 0)
        raw = text.encode()
        self._library.espeak_Synth(raw, len(raw) + 1, 0, 1, 0, _CHARS_UTF8, None, None)
        factor = rng.uniform(0.92, 1.08)  # a longer or shorter vocal tract
        down = round(self._rate * factor / 50)
        scaled = resample_poly(np.concatenate(self._chunks).astype(np.float32), RATE // 50, down)
        return np.clip(scaled, -32_768, 32_767).astype(np.int16).astype(np.float32) / 32_768


@cache
def _speaker() -> _Speaker:
    return _Speaker()
