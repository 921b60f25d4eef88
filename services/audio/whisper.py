"""Whisper on CTranslate2 through faster-whisper, with an encoder window that fits the utterance.

Whisper pads everything to 30 s, and its encoder then works on 30 s of mostly nothing. The encoder itself takes any
length (whisper.cpp calls it `audio_ctx`). For two seconds of speech the demo model needs 17 ms of one core in a window
of 5 s and 240 ms in one of 30 s, for the same words. What looks wrong in a short window is tried in the full one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from faster_whisper import WhisperModel
from faster_whisper.tokenizer import Tokenizer
from faster_whisper.transcribe import get_compression_ratio, merge_punctuations
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from services.audio.alignment import plain, shifted
from services.audio.speech import RATE, Audio, Word
from services.audio.vad import spoken, utterances

FULL_S = 30  # s; what Whisper is trained on
_ROOM_S, _STEP_S = 1.0, 1.0  # silence after the speech, and the grid of window lengths
_TOKENS_PER_S, _TOKENS = 15, 16  # nobody says more
_TOO_REPETITIVE, _TOO_UNSURE, _NO_SPEECH = 2.4, -1.0, 0.6  # OpenAI's thresholds, faster-whisper's defaults
_UTTERANCE_S, _PAUSE_S = 10.0, 0.5  # of a recording: the longest piece, and the silence between pieces
_OPENING, _CLOSING = "\"'“¿([{-", "\"'.。,，!！?？:：”)]}、"  # faster-whisper's lists
_UNSPACED = ("zh", "ja", "th", "lo", "my", "yue")  # written without spaces between words


def open_whisper(
    model: str, device: str, compute_type: str, threads: int, shortest_window_s: float | None = None
) -> Whisper:
    """Load a CTranslate2 Whisper: a folder, or a name that faster-whisper knows. `device`: cpu, cuda, auto.
    `shortest_window_s`: the least the encoder gets; None: what the model says of itself, or else the full window, on
    which Whispers are trained.

    Takes NumPy's BLAS down to one thread, for the whole process: spinning on the small product of the mel filters, its
    other threads cost more than the model does (46 instead of 17 ms of CPU for two seconds of speech).
    """
    threadpool_limits(1, "blas")
    loaded = WhisperModel(model, device=device, compute_type=compute_type, cpu_threads=threads)
    return Whisper(loaded, Path(model).name, shortest_window_s or _shortest_window_s(Path(model)))


def _shortest_window_s(folder: Path) -> float:
    """A model that was trained on shorter windows says so beside its other settings."""
    try:
        said = json.loads((folder / "preprocessor_config.json").read_text())
    except (OSError, ValueError):  # a name on the hub, or a folder without
        return FULL_S
    return float(said.get("shortest_window_s", FULL_S))


class Whisper:
    """A `Recognizer`. `shortest_window_s` is the least the encoder gets; 30 for models that need the full window."""

    def __init__(self, model: WhisperModel, name: str, shortest_window_s: float = FULL_S):
        self.name = name
        self.device: str = model.model.device
        self.compute_type: str = model.model.compute_type
        self.languages: tuple[str, ...] = tuple(model.supported_languages)
        self._model = model
        self._shortest_s = shortest_window_s
        self._tokenizer = lru_cache(maxsize=8)(self._new_tokenizer)

    def transcribe_utterance(self, audio: Audio, language: str, before: str = "") -> list[Word]:
        """One run of encoder, greedy decoder and alignment; two if the first one looks wrong."""
        if len(audio) < self._model.feature_extractor.n_fft:
            return []
        features: NDArray[np.float32] = self._model.feature_extractor(audio[: FULL_S * RATE])[..., : FULL_S * 100]
        run = _Run(self._model, self._tokenizer(language), features, before)
        frames = self._window_frames(features.shape[-1])
        found = run.decode(frames)
        if found.suspect and frames < FULL_S * 100:
            found = run.decode(FULL_S * 100)
        return [] if found.silent else without_loops(run.words(found))

    def transcribe(self, audio: Audio, language: str) -> Iterator[list[Word]]:
        """Each utterance between two pauses by itself: nothing carries an error on, and nothing is longer than 10 s. Of
        silence, each 30 s give an empty list."""
        for start, stop in utterances(audio, pause_s=_PAUSE_S, longest_s=_UTTERANCE_S):
            words = self.transcribe_utterance(audio[start:stop], language)
            yield [shifted(word, start / RATE) for word in words]

    def speech_s(self, audio: Audio) -> float:
        """By the Silero detector's frames."""
        return spoken(audio) / RATE

    def _window_frames(self, frames: int) -> int:
        needed_s = math.ceil((frames / 100 + _ROOM_S) / _STEP_S) * _STEP_S
        return int(min(max(needed_s, self._shortest_s), FULL_S) * 100)

    def _new_tokenizer(self, language: str) -> Tokenizer:
        multilingual = self._model.model.is_multilingual
        return Tokenizer(self._model.hf_tokenizer, multilingual, task="transcribe", language=language)


class _Decoded:
    """What the decoder said, and the encoder's output it said it from."""

    def __init__(self, encoded: Any, tokens: list[int], text: str, logprob: float, no_speech: float, cut: bool):
        self.encoded, self.tokens = encoded, tokens
        self.silent = no_speech > _NO_SPEECH and logprob < _TOO_UNSURE
        repetitive = bool(text) and get_compression_ratio(text) > _TOO_REPETITIVE
        self.suspect = not self.silent and (cut or repetitive or logprob < _TOO_UNSURE)


class _Run:
    """One utterance on its way through the model."""

    def __init__(self, model: WhisperModel, tokenizer: Tokenizer, features: NDArray[np.float32], before: str):
        self._model, self._tokenizer, self._features = model, tokenizer, features
        self._most = _TOKENS + int(_TOKENS_PER_S * features.shape[-1] / 100)
        said = tokenizer.encode(" " + before.strip()) if before else []
        self._prompt = model.get_prompt(tokenizer, said)

    def decode(self, frames: int) -> _Decoded:
        padding = max(0, frames - self._features.shape[-1])
        encoded = self._model.encode(np.pad(self._features, ((0, 0), (0, padding))))
        (result,) = self._model.model.generate(
            encoded,
            [self._prompt],
            beam_size=1,
            max_length=min(len(self._prompt) + self._most, self._model.max_length),
            suppress_tokens=[-1],  # those the model itself names
            return_scores=True,
            return_no_speech_prob=True,
        )
        tokens = list(result.sequences_ids[0])
        logprob = result.scores[0] * len(tokens) / (len(tokens) + 1)
        text = self._tokenizer.decode(tokens).strip()
        return _Decoded(encoded, tokens, text, logprob, result.no_speech_prob, len(tokens) >= self._most)

    def words(self, decoded: _Decoded) -> list[Word]:
        """With times from the decoder's cross-attention, as faster-whisper does it."""
        tokens = [token for token in decoded.tokens if token < self._tokenizer.eot]
        if not tokens:
            return []
        frames = self._features.shape[-1]
        (found,) = self._model.find_alignment(self._tokenizer, [tokens], decoded.encoded, frames)
        merge_punctuations(found, _OPENING, _CLOSING)
        spaced = self._tokenizer.language_code not in _UNSPACED
        words: list[Word] = []
        for each in found:
            if words and spaced and each["word"].strip() and not each["word"].startswith(" "):
                words.append(_joined(words.pop(), _word(each)))  # the rest of `ninety-nine`
            elif each["word"].strip():
                words.append(_word(each))
        return words


def _word(found: dict[str, Any]) -> Word:
    start, end = float(found["start"]), float(found["end"])
    return Word(found["word"].strip(), start, max(start, end), float(found["probability"]))


def _joined(word: Word, rest: Word) -> Word:
    return Word(word.text + rest.text, word.start_s, rest.end_s, min(word.probability, rest.probability))


def without_loops(words: list[Word], most: int = 3, longest: int = 12) -> list[Word]:
    """Says once what a decoder that got stuck said more than `most` times in a row: up to `longest` words at a time."""
    texts = [plain(word.text) for word in words]
    for length in range(1, longest + 1):
        for at in range(len(texts) - length * (most + 1) + 1):
            times = 1
            while texts[at + times * length : at + (times + 1) * length] == texts[at : at + length]:
                times += 1
            if times > most:
                return without_loops(words[: at + length] + words[at + times * length :], most, longest)
    return words
