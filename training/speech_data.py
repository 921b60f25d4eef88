"""Read sentences aloud with eSpeak NG, in-process, and keep the time at which every word starts."""

from __future__ import annotations

import ctypes
import ctypes.util
import random
from dataclasses import dataclass

import numpy as np
from scipy.signal import resample_poly

RATE = 16_000  # Hz, what Whisper hears
VOICES = ("en-us", "en-gb", "en-gb-x-rp", "en-gb-scotland", "en-029")
VARIANTS = (
    "",
    *"+m1 +m3 +m4 +m6 +m7 +f1 +f2 +f3 +f4 +f5 +Alex +Andy +Annie +Michael +Denis +linda +paul +quincy +steph".split(),
)
_SYNCHRONOUS, _CHARS_UTF8, _PARAM_RATE, _PARAM_PITCH, _PARAM_RANGE, _EVENT_WORD = 2, 1, 1, 3, 4, 1


class _Event(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_void_p),
    ]


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


@dataclass(frozen=True)
class Utterance:
    audio: np.ndarray  # int16, RATE Hz, mono
    words: list[str]
    starts: list[float]  # seconds, one per word
    end: float  # seconds, where the last word ends


class Speaker:
    """One eSpeak NG instance; the library holds global state, so make at most one per process."""

    def __init__(self, library: str | None = None, data: str | None = None):
        self._lib = ctypes.CDLL(library or ctypes.util.find_library("espeak-ng") or "libespeak-ng.so.1")
        self._rate = self._lib.espeak_Initialize(_SYNCHRONOUS, 0, data.encode() if data else None, 0)
        if self._rate <= 0:
            raise RuntimeError("eSpeak NG did not start: is its data installed?")
        self._chunks: list[np.ndarray] = []
        self._marks: list[tuple[int, float]] = []
        self._callback = _CALLBACK(self._collect)  # keep a reference: C holds only the pointer
        self._lib.espeak_SetSynthCallback(self._callback)

    def _collect(self, wav, count, events) -> int:
        if count > 0:
            self._chunks.append(np.ctypeslib.as_array(wav, (count,)).copy())
        i = 0
        while events[i].type != 0:
            if events[i].type == _EVENT_WORD:
                self._marks.append((events[i].text_position - 1, events[i].audio_position / 1000))
            i += 1
        return 0

    def say(self, text: str, rng: random.Random, voice: str = "") -> Utterance:
        """Synthesize `text` in an English voice drawn at random, or in `voice`, at a random speed and pitch."""
        self._chunks, self._marks = [], []
        drawn = rng.choice(VOICES) + rng.choice(VARIANTS)
        self._lib.espeak_SetVoiceByName((voice or drawn).encode())
        self._lib.espeak_SetParameter(_PARAM_RATE, rng.randint(120, 210), 0)
        self._lib.espeak_SetParameter(_PARAM_PITCH, rng.randint(25, 75), 0)
        self._lib.espeak_SetParameter(_PARAM_RANGE, rng.randint(30, 70), 0)
        raw = text.encode()
        self._lib.espeak_Synth(raw, len(raw) + 1, 0, 1, 0, _CHARS_UTF8, None, None)
        audio = np.concatenate(self._chunks)
        factor = rng.uniform(0.92, 1.08)  # a longer or shorter vocal tract
        up, down = RATE, round(self._rate * factor / 50) * 50
        scaled = resample_poly(audio.astype(np.float32), up // 50, down // 50)
        stretch = up / down * self._rate / RATE  # seconds of output per second eSpeak spoke
        loud = np.flatnonzero(np.abs(scaled) > 200)
        end = (loud[-1] + 1) / RATE if len(loud) else len(scaled) / RATE
        words, starts, position = text.split(), [], 0
        for word in words:
            position = text.index(word, position)
            inside = [t for p, t in self._marks if position <= p < position + len(word)]
            starts.append(min(inside) * stretch if inside else (starts[-1] if starts else 0.0))
            position += len(word)
        return Utterance(np.clip(scaled, -32768, 32767).astype(np.int16), words, starts, end)
