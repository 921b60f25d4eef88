"""Whisper on CTranslate2 through faster-whisper: utterances of a stream, and whole recordings in batches of windows."""

from __future__ import annotations

import json
import logging
import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from faster_whisper import WhisperModel
from faster_whisper.feature_extractor import FeatureExtractor
from faster_whisper.tokenizer import Tokenizer
from faster_whisper.utils import download_model
from threadpoolctl import threadpool_limits

from services.audio.alignment import plain
from services.audio.engine import Task
from services.audio.errors import OutOfMemory
from services.audio.packing import PackedWindow, speech_for, windows
from services.audio.speech import RATE, Audio, Transcript, Word
from services.audio.whisper_parts import FRAMES_PER_S, FULL, Decoded, Encoded, EncodedBatch, SpeechDecoder

_SILENT_SHARE = 0.4  # share of the shortest window that stays silent after the speech: with less, models invent words
_STEP_S = 5.0  # window lengths are multiples of it, so that many windows have the same length and share a batch
_BEAM = 5  # beam size if the result of greedy decoding looks wrong
_NO_MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "failed to allocate memory")  # in CTranslate2's errors
_RETRY_S = 1.0
_log = logging.getLogger(__name__)
_TOKENS_PER_S = 4.0  # of speech


@dataclass(frozen=True, slots=True)
class WindowLengths:
    """The encoder's shortest window, and the most speech in one window, in seconds.

    Whispers are trained on 30 s. In windows of less than 10 s they invent words, unless they were trained for them:
    whisper-base gets 11.0% of the words of single utterances wrong in 8 s, 2.4% in 10 s, 2.6% in 30 s.
    """

    shortest_s: float = 10.0
    longest_s: float = 30.0


def open_whisper(
    model: str, device: str, compute_type: str, threads: int, shortest_window_s: float | None = None, workers: int = 1
) -> Whisper:
    """Load a CTranslate2 Whisper: a folder, or a name that faster-whisper knows. `device`: cpu, cuda, auto.
    `shortest_window_s`: the encoder's shortest window; None: the model's own setting, else 10 s. `workers`: concurrent
    runs, each with `threads`; they share the weights, and further runs wait. Raises ValueError, RuntimeError and
    OSError if the model cannot be loaded.

    Limits NumPy's BLAS to one thread, for the whole process: with more threads, the spinning of the others on the small
    product of the mel filters costs more than the model (46 instead of 17 ms of CPU for two seconds of speech).
    """
    threadpool_limits(1, "blas")
    folder = Path(model if Path(model).is_dir() else download_model(model))
    _check_files(folder)
    loaded = WhisperModel(
        str(folder), device=device, compute_type=compute_type, cpu_threads=threads, num_workers=workers
    )
    if loaded.feature_extractor.mel_filters.shape[0] != loaded.model.n_mels:  # large-v3 without its preprocessor_config
        loaded.feature_extractor = FeatureExtractor(feature_size=loaded.model.n_mels)
    lengths = window_lengths(folder)
    if shortest_window_s:
        lengths = WindowLengths(shortest_window_s, max(shortest_window_s, lengths.longest_s))
    return Whisper(loaded, Path(model).name, lengths)


def _check_files(folder: Path) -> None:
    """Raise ValueError for a model without the files for words and their times."""
    if not (folder / "tokenizer.json").is_file():  # faster-whisper would ask the hub for another model's
        raise ValueError(f"tokenizer.json: required beside model.bin, not found in {folder}")
    config = folder / "config.json"
    if not (config.is_file() and json.loads(config.read_text("utf-8")).get("alignment_heads")):
        raise ValueError(f"alignment_heads: required in {config}; convert the model with ctranslate2 4 or later")


def window_lengths(folder: Path) -> WindowLengths:
    """The window lengths of a model: `shortest_window_s` and `longest_window_s` of its `preprocessor_config.json`, if
    it was trained on shorter windows."""
    try:
        said = json.loads((folder / "preprocessor_config.json").read_text("utf-8"))
    except OSError:  # not every model has one
        return WindowLengths()
    usual = WindowLengths()
    return WindowLengths(
        float(said.get("shortest_window_s", usual.shortest_s)), float(said.get("longest_window_s", usual.longest_s))
    )


class Whisper:
    """A `Recognizer`."""

    def __init__(self, model: WhisperModel, name: str, lengths: WindowLengths):
        self.name = name
        self.device: str = model.model.device
        self.compute_type: str = model.model.compute_type
        self.languages = tuple(
            code for code in model.supported_languages if not model.model.is_multilingual or _knows(model, code)
        )
        self.translates: bool = model.model.is_multilingual
        self._model, self._lengths = model, lengths
        self._decoder = SpeechDecoder(model)
        self._tokenizer = lru_cache(maxsize=16)(self._new_tokenizer)

    def transcribe_utterance(self, audio: Audio, language: str) -> Transcript:
        """One run of encoder, greedy decoder and alignment; two if the first one looks wrong."""
        features = self._decoder.features(audio)
        if not features.size:
            return Transcript()
        with _full_memory_named(self.device):
            window = self._decoder.encode(features, self._window_frames(features.shape[-1]))
            language, certainty = self._language(window, language)
            (words,) = self._words([window], Task(language))
        return Transcript(words, language if words else "", certainty)

    def transcribe(self, recording: Audio, task: Task, batch: Callable[[], int]) -> Iterator[Transcript]:
        """Detect voice activity, block by block; then encode window after window; then decode windows of one length, up
        to `batch()` at a time."""
        with _full_memory_named(self.device):
            yield from self._transcribed(recording, task, batch)

    def _transcribed(self, recording: Audio, task: Task, batch: Callable[[], int]) -> Iterator[Transcript]:
        speech, spoken = speech_for(self._lengths.longest_s), 0
        waiting: list[tuple[PackedWindow, Encoded]] = []
        for window in windows(recording, self._lengths.longest_s, speech):
            if window is None:
                yield Transcript(speech_s=(speech.spoken - spoken) / RATE)
                spoken = speech.spoken
                continue
            encoded = self._encoded(window, recording, later=bool(task.language) or len(self.languages) == 1)
            if waiting and waiting[0][1].features.shape != encoded.features.shape:
                yield self._transcript(waiting, task)
                waiting = []
            task = replace(task, language=self._language(encoded, task.language)[0])
            waiting.append((window, encoded))
            yield Transcript(language=task.language)
            if len(waiting) >= batch():
                yield self._transcript(waiting, task)
                waiting = []
        if waiting:
            yield self._transcript(waiting, task)

    def cost_s(self, seconds: float) -> float:
        """The duration of a run on an utterance, in seconds of one worker."""
        frames, tokens = self._window_frames(round(seconds * FRAMES_PER_S)), round(seconds * _TOKENS_PER_S)
        took: list[float] = []
        for _ in range(4):  # the first run is slow
            began = time.perf_counter()
            self._decoder.work(frames, tokens, self._tokenizer("en"))
            took.append(time.perf_counter() - began)
        return min(took)

    def _encoded(self, window: PackedWindow, recording: Audio, *, later: bool) -> Encoded:
        features = self._decoder.features(window.audio(recording))
        return self._decoder.encode(features, self._window_frames(features.shape[-1]), later=later)

    def _transcript(self, waiting: Sequence[tuple[PackedWindow, Encoded]], task: Task) -> Transcript:
        """The transcripts of windows of one length."""
        words = self._words([each for _, each in waiting], task)
        found = [_recorded(word, window) for (window, _), each in zip(waiting, words, strict=True) for word in each]
        return Transcript(tuple(found), task.language)

    def _words(self, windows: Sequence[Encoded], task: Task) -> list[tuple[Word, ...]]:
        """The words of each window, of windows of one length. A window with a bad result is transcribed again, without
        the prompt, which may be its cause."""
        tokenizer = self._tokenizer(task.language, translate=task.translate)
        batch = self._decoder.batch(windows)
        decoded = self._decoder.decode(batch, tokenizer, before=task.prompt)
        good = [replace(each, tokens=[]) if each.suspect else each for each in decoded]
        words = self._aligned(batch, good, tokenizer)
        return [
            self._again(window, tokenizer) if each.suspect else found
            for window, each, found in zip(windows, decoded, words, strict=True)
        ]

    def _again(self, window: Encoded, tokenizer: Tokenizer) -> tuple[Word, ...]:
        """The words of a window in full length, decoded with a beam."""
        if window.features.shape[-1] < FULL:
            window = self._decoder.encode(window.features[..., : window.frames], FULL)
        batch = self._decoder.batch([window])
        (words,) = self._aligned(batch, self._decoder.decode(batch, tokenizer, _BEAM), tokenizer)
        return words

    def _aligned(self, batch: EncodedBatch, decoded: Sequence[Decoded], tokenizer: Tokenizer) -> list[tuple[Word, ...]]:
        found = self._decoder.words(batch, decoded, tokenizer)
        return [() if each.silent else without_loops(words) for words, each in zip(found, decoded, strict=True)]

    def _language(self, window: Encoded, language: str) -> tuple[str, float]:
        """The requested language, or else the detected one, and its probability."""
        if language:
            return language, 1.0
        if len(self.languages) == 1:
            return self.languages[0], 1.0
        return self._decoder.language(window)

    def _window_frames(self, frames: int) -> int:
        """The shortest window for this many frames."""
        needed_s = frames / FRAMES_PER_S + _SILENT_SHARE * self._lengths.shortest_s
        window_s = max(self._lengths.shortest_s, math.ceil(needed_s / _STEP_S) * _STEP_S)
        return min(FULL, round(window_s * FRAMES_PER_S))

    def _new_tokenizer(self, language: str, *, translate: bool = False) -> Tokenizer:
        task = "translate" if translate else "transcribe"
        made = Tokenizer(self._model.hf_tokenizer, self._model.model.is_multilingual, task=task, language=language)
        if translate:
            made.language_code = "en"  # the language of the text, for its words; the prompt has the spoken language
        return made


@contextmanager
def _full_memory_named(device: str) -> Iterator[None]:
    """Raise OutOfMemory for CTranslate2's RuntimeError of a device whose memory is full."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in _NO_MEMORY):
            raise
        _log.error("out of memory on %s: %s", device, error)
        traceback.clear_frames(error.__traceback__)  # their locals hold the device's memory
        what = f"the speech model: its memory on {device} is full"
        remedy = "lower the setting workers, or take a smaller compute_type (int8_float16) or model"
        raise OutOfMemory(f"{what}. Try again; if it repeats, {remedy}", retry_delay_s=_RETRY_S) from None


def _knows(model: WhisperModel, language: str) -> bool:
    """Whether the model knows a language; faster-whisper lists the languages of the newest Whisper for every model."""
    return model.hf_tokenizer.token_to_id(f"<|{language}|>") is not None


def _recorded(word: Word, window: PackedWindow) -> Word:
    """A word of a window, with its times in the recording."""
    start_s, end_s = window.recorded_s(word.start_s, word.end_s)
    return replace(word, start_s=start_s, end_s=end_s)


def without_loops(words: Sequence[Word], most: int = 3, longest: int = 12) -> tuple[Word, ...]:
    """Remove the repetitions of a decoder in a loop: a sequence of up to `longest` words that comes more than `most`
    times in a row is kept once."""
    texts = [plain(word.text) for word in words]
    for length in range(1, longest + 1):
        for at in range(len(texts) - length * (most + 1) + 1):
            times = 1
            while texts[at + times * length : at + (times + 1) * length] == texts[at : at + length]:
                times += 1
            if times > most:
                return without_loops((*words[: at + length], *words[at + times * length :]), most, longest)
    return tuple(words)
