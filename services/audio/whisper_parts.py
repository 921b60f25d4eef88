"""Whisper's parts, each a call that blocks: features, encoder, language, decoder, times of words.

Whisper pads everything to 30 s, and its encoder then works on 30 s of mostly nothing. The encoder itself takes any
length (whisper.cpp calls it `audio_ctx`), and needs 0.02 s for 6 s, 0.035 s for 10 s and 0.26 s for 30 s (whisper-base,
int8, two threads). What is padded gets the value of silence, not faster-whisper's 0, which is noise to the model:
whisper-base, which needs at least 10 s, gets 2.4% of the words of single utterances wrong instead of 3.1%.

On a CPU windows are encoded one at a time (8 together take 2.5 × as long), then decoded together (8 take half as long).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ctranslate2
import numpy as np
from faster_whisper import WhisperModel
from faster_whisper.tokenizer import Tokenizer
from faster_whisper.transcribe import get_compression_ratio, merge_punctuations
from numpy.typing import NDArray

from services.audio.speech import Audio, Word
from services.runtime.letters import UNSPACED

FULL = 3_000  # frames of 10 ms in the window that Whispers are trained on
FRAMES_PER_S = 100
_TOKENS_PER_S, _TOKENS = 15, 16  # no speech has more, but for that of some languages
# Languages whose letters take one to three tokens each: fast speech in Malayalam has 39 a second, in Burmese more.
_SEVERAL_A_LETTER = frozenset("am as bn bo gu hi hy ka km kn lo ml mr my ne pa sa si te".split())  # noqa: SIM905  # short
_SEVERAL_PER_S = 50
_TOO_REPETITIVE, _TOO_UNSURE, _NO_SPEECH = 2.4, -1.0, 0.6  # OpenAI's thresholds, faster-whisper's defaults
_OPENING, _CLOSING = "\"'“¿([{-", "\"'.。,，!！?？:：”)]}、"  # faster-whisper's lists
Features = NDArray[np.float32]  # (mel bands, frames)


@dataclass(frozen=True)
class Encoded:
    """A window after the encoder. `frames`: how many of it are audio. `output` is None for one that is encoded with
    others, in a batch."""

    features: Features
    frames: int
    output: Any


@dataclass(frozen=True)
class EncodedBatch:
    """Windows of one length, and the encoder's output for all of them."""

    windows: Sequence[Encoded]
    output: Any


@dataclass(frozen=True)
class Decoded:
    """The tokens of a window, without the special ones, and how sure the decoder is of them."""

    tokens: list[int]
    logprob: float
    no_speech: float
    compression: float
    full: bool  # as many tokens as it may have

    @property
    def silent(self) -> bool:
        return self.no_speech > _NO_SPEECH and self.logprob < _TOO_UNSURE

    @property
    def suspect(self) -> bool:
        unsure = self.full or self.compression > _TOO_REPETITIVE or self.logprob < _TOO_UNSURE
        return unsure and not self.silent


class SpeechDecoder:
    """A loaded model."""

    def __init__(self, model: WhisperModel):
        self._model = model
        self.on_cpu = model.model.device == "cpu"

    def features(self, audio: Audio) -> Features:
        """The features of at most 30 s of audio; empty if the audio is too short."""
        if len(audio) < self._model.feature_extractor.n_fft:
            return np.empty((0, 0), np.float32)
        found: Features = self._model.feature_extractor(audio)[..., : min(FULL, len(audio) // 160)]
        return found

    def encode(self, features: Features, frames: int, *, later: bool = False) -> Encoded:
        """Encode features in a window of `frames` frames. `later`: on a GPU, encode together with other windows, in
        `batch`."""
        padding = max(0, frames - features.shape[-1])
        padded = np.pad(features, ((0, 0), (0, padding)), constant_values=float(features.min()))
        return Encoded(padded, features.shape[-1], None if later and not self.on_cpu else self._model.encode(padded))

    def batch(self, windows: Sequence[Encoded]) -> EncodedBatch:
        """Windows of one length as one batch. A GPU encodes several windows here, once for all that follows."""
        if len(windows) == 1 and windows[0].output is not None:
            return EncodedBatch(windows, windows[0].output)
        if not self.on_cpu:
            return EncodedBatch(windows, self._model.encode(np.stack([window.features for window in windows])))
        together = np.concatenate([np.asarray(window.output) for window in windows])
        return EncodedBatch(windows, ctranslate2.StorageView.from_array(together))

    def language(self, encoded: Encoded) -> tuple[str, float]:
        """The most probable language of an encoded window, and its probability."""
        ((token, probability), *_) = self._model.model.detect_language(self.batch([encoded]).output)[0]
        return token[2:-2], float(probability)

    def decode(self, batch: EncodedBatch, tokenizer: Tokenizer, beam: int = 1, before: str = "") -> list[Decoded]:
        """The tokens of each window, as they go on from the text `before`."""
        earlier = tokenizer.encode(f" {before.strip()}") if before else []
        prompt = self._model.get_prompt(tokenizer, earlier, without_timestamps=True)
        most = most_tokens(max(window.frames for window in batch.windows), tokenizer.language_code)
        most = min(most, self._model.max_length - len(prompt))
        results = self._model.model.generate(
            batch.output,
            [prompt] * len(batch.windows),
            beam_size=beam,
            max_length=len(prompt) + most,
            suppress_tokens=[-1],  # those the model itself names
            return_scores=True,
            return_no_speech_prob=True,
        )
        return [self._decoded(result, tokenizer, most) for result in results]

    def words(self, batch: EncodedBatch, decoded: Sequence[Decoded], tokenizer: Tokenizer) -> list[tuple[Word, ...]]:
        """Words with times from the decoder's cross-attention. Windows are aligned one at a time on a CPU, where that
        takes half as long."""
        if len(batch.windows) > 1 and self.on_cpu:
            pairs = zip(batch.windows, decoded, strict=True)
            return [self.words(self.batch([window]), [each], tokenizer)[0] for window, each in pairs]
        if not any(each.tokens for each in decoded):
            return [()] * len(batch.windows)
        frames = [window.frames for window in batch.windows]
        found = self._model.find_alignment(tokenizer, [each.tokens for each in decoded], batch.output, frames)
        return [words_of(each, spaced=tokenizer.language_code not in UNSPACED) for each in found]

    def work(self, frames: int, tokens: int, tokenizer: Tokenizer) -> None:
        """Do what an utterance of so many frames and tokens costs, whatever is in it."""
        noise = np.random.default_rng(0).normal(-0.5, 0.1, (self._model.model.n_mels, frames)).astype(np.float32)
        batch = self.batch([self.encode(noise, frames)])
        prompt = self._model.get_prompt(tokenizer, [], without_timestamps=True)
        (result,) = self._model.model.generate(
            batch.output, [prompt], beam_size=1, max_length=len(prompt) + tokens,
            suppress_tokens=[-1, tokenizer.eot],
        )  # fmt: skip
        text = [token for token in result.sequences_ids[0] if token < tokenizer.eot]
        self.words(batch, [Decoded(text, 0.0, 0.0, 1.0, False)], tokenizer)

    def _decoded(self, result: Any, tokenizer: Tokenizer, most: int) -> Decoded:
        tokens = [token for token in result.sequences_ids[0] if token < tokenizer.eot]
        text = tokenizer.decode(tokens).strip()
        logprob = result.scores[0] * len(tokens) / (len(tokens) + 1)
        return Decoded(
            tokens, logprob, result.no_speech_prob, get_compression_ratio(text) if text else 1.0, len(tokens) >= most
        )


def most_tokens(frames: int, language: str) -> int:
    """The most tokens that a text of this language may have for so much audio. A decoder in a loop ends there."""
    per_s = _SEVERAL_PER_S if language in _SEVERAL_A_LETTER else _TOKENS_PER_S
    return _TOKENS + per_s * frames // FRAMES_PER_S


def words_of(found: list[dict[str, Any]], *, spaced: bool) -> tuple[Word, ...]:
    """The words of an alignment, punctuation with its word. `spaced`: the language has spaces between words."""
    merge_punctuations(found, _OPENING, _CLOSING)
    words: list[Word] = []
    apart = spaced
    for each in found:
        apart |= each["word"].startswith(" ")
        if not each["word"].strip():
            continue
        if words and spaced and not apart:
            words.append(_joined(words.pop(), _word(each)))  # the rest of `ninety-nine`
        else:
            words.append(replace(_word(each), joined=not apart))
        apart = False
    return tuple(words)


def _word(found: dict[str, Any]) -> Word:
    start, end = float(found["start"]), float(found["end"])
    return Word(found["word"].strip(), start, max(start, end), float(found["probability"]))


def _joined(word: Word, rest: Word) -> Word:
    probability = min(word.probability, rest.probability)
    return replace(word, text=word.text + rest.text, end_s=rest.end_s, probability=probability)
