"""The demo model behind the seam."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from google.rpc import code_pb2

from services.audio.engine import Task
from services.audio.errors import OutOfMemory
from services.audio.speech import RATE, Audio, Transcript, Word
from services.audio.whisper import Whisper, open_whisper, without_loops
from services.audio.whisper_parts import Decoded, EncodedBatch, SpeechDecoder
from tests.models import MODELS
from tests.unit.audio.voices import question, said, silence, texts

TEXT = ["What", "is", "the", "capital", "of", "France?"]


@pytest.fixture(scope="module")
def whisper() -> Whisper:
    return open_whisper(str(MODELS / "demo-whisper"), "cpu", "int8", 1)


def test_the_model_reports_its_name_device_and_languages(whisper: Whisper) -> None:
    assert (whisper.name, whisper.device, whisper.languages) == ("demo-whisper", "cpu", ("en",))
    assert whisper.compute_type.startswith("int8")


def test_it_transcribes_words_with_times_in_order(whisper: Whisper) -> None:
    words = whisper.transcribe_utterance(question(), "en").words
    assert texts(words) == TEXT
    assert all(0 <= word.start_s <= word.end_s <= len(question()) / RATE for word in words)
    assert [word.start_s for word in words] == sorted(word.start_s for word in words)
    assert all(0 < word.probability <= 1 for word in words)


def test_a_model_that_needs_the_full_window_gets_it() -> None:
    whole = open_whisper(str(MODELS / "demo-whisper"), "cpu", "int8", 1, shortest_window_s=30)
    assert texts(whole.transcribe_utterance(question(), "en").words) == TEXT


@pytest.mark.parametrize("seconds", [0, 0.01, 0.5, 5])
def test_silence_and_noise_have_no_words(whisper: Whisper, seconds: float) -> None:
    assert whisper.transcribe_utterance(silence(seconds), "en").words == ()
    noise = np.random.default_rng(0).normal(0, 0.01, round(seconds * RATE)).astype(np.float32)
    assert whisper.transcribe_utterance(noise, "en").words == ()


def test_audio_beyond_the_models_window_is_left_out(whisper: Whisper) -> None:
    words = whisper.transcribe_utterance(np.concatenate([question()] * 20), "en").words
    assert words
    assert words[-1].end_s <= 30


def heard(whisper: Whisper, recording: Audio, batch: int = 4) -> list[Transcript]:
    return list(whisper.transcribe(recording, Task("en"), lambda: batch))


@pytest.mark.parametrize("batch", [1, 4])
def test_a_recording_comes_in_pieces_of_work_with_times_of_the_whole(whisper: Whisper, batch: int) -> None:
    recording = np.concatenate((silence(3), question(), silence(2), question(), silence(3)))
    words = [word for step in heard(whisper, recording, batch) for word in step.words]
    assert texts(words) == TEXT * 2
    assert 2.5 < words[0].start_s < 4
    assert words[len(TEXT)].start_s > 3 + len(question()) / RATE + 1.5


def test_no_piece_decodes_more_windows_than_it_may(whisper: Whisper) -> None:
    recording = np.concatenate((question(), silence(1)) * 8)  # windows of 10 s: three
    pieces = [sum(bool(step.words) for step in heard(whisper, recording, batch)) for batch in (1, 2, 3)]
    assert pieces == [3, 2, 2]  # the last one is shorter than the others, and decoded alone


def test_a_recording_of_silence_has_no_words_and_no_speech(whisper: Whisper) -> None:
    assert heard(whisper, silence(8)) == [Transcript()]


def test_speech_is_measured_without_the_silence(whisper: Whisper) -> None:
    seconds = len(question()) / RATE
    steps = heard(whisper, np.concatenate((silence(3), question(), silence(3))))
    assert 0.6 * seconds < sum(step.speech_s for step in steps) <= seconds + 0.2


def test_an_english_model_transcribes_english_where_no_language_is_named(whisper: Whisper) -> None:
    found = whisper.transcribe_utterance(question(), "")
    assert (texts(found.words), found.language) == (TEXT, "en")


def test_the_cost_of_an_utterance_is_measured_without_speech(whisper: Whisper) -> None:
    assert 0 < whisper.cost_s(1) < 10


@pytest.mark.parametrize(
    ("stuck", "free"),
    [
        ("no no no", "no no no"),
        ("no no no no no no fox", "no fox"),
        ("it is a fox it is a fox it is a fox it is a fox it is", "it is a fox it is"),
        ("a b a b", "a b a b"),
    ],
)
def test_a_loop_is_said_once(stuck: str, free: str) -> None:
    words: list[Word] = said(*stuck.split())
    assert texts(without_loops(words)) == free.split()


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Whisper:
    """Takes the ways of a GPU on the CPU, where the recognizer chooses between them."""
    gpu = open_whisper(str(MODELS / "demo-whisper"), "cpu", "int8", 1)
    monkeypatch.setattr(gpu._decoder, "on_cpu", False)
    return gpu


def test_a_gpu_finds_what_a_cpu_finds(whisper: Whisper, on_a_gpu: Whisper) -> None:
    recording = np.concatenate((question(), silence(1)) * 8)
    assert [said.words for said in heard(on_a_gpu, recording)] == [said.words for said in heard(whisper, recording)]


def test_a_gpu_encodes_an_utterance_once(on_a_gpu: Whisper, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = MagicMock(wraps=on_a_gpu._model.encode)
    monkeypatch.setattr(on_a_gpu._model, "encode", encode)
    assert texts(on_a_gpu.transcribe_utterance(question(), "").words) == TEXT
    assert encode.call_count == 1


def windows_encoded(encode: MagicMock) -> int:
    """How many windows the encoder was given, alone or together."""
    return sum(1 if call.args[0].ndim == 2 else len(call.args[0]) for call in encode.call_args_list)


def test_a_gpu_encodes_each_window_of_a_recording_once(on_a_gpu: Whisper, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = MagicMock(wraps=on_a_gpu._model.encode)
    monkeypatch.setattr(on_a_gpu._model, "encode", encode)
    monkeypatch.setattr(Decoded, "suspect", False)  # one whose text repeats itself is
    recording = np.concatenate((question(), silence(1)) * 8)
    assert [word for step in heard(on_a_gpu, recording) for word in step.words]
    assert windows_encoded(encode) == 3


def test_a_gpu_encodes_a_short_recording_once_whose_language_it_detects(
    on_a_gpu: Whisper, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = MagicMock(wraps=on_a_gpu._model.encode)
    monkeypatch.setattr(on_a_gpu._model, "encode", encode)
    monkeypatch.setattr(on_a_gpu, "languages", ("en", "de"))
    monkeypatch.setattr(on_a_gpu._decoder, "language", lambda window: (window.output and "en", 1.0))
    (found,) = [step for step in on_a_gpu.transcribe(question(), Task(), lambda: 4) if step.words]
    assert (texts(found.words), windows_encoded(encode)) == (TEXT, 1)


def test_a_gpu_aligns_a_window_that_was_decoded_again_beside_others(
    whisper: Whisper, on_a_gpu: Whisper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoded again, it has its full length, and the others do not."""
    decode = SpeechDecoder.decode

    def first_badly(
        self: SpeechDecoder, batch: EncodedBatch, tokenizer: Any, beam: int = 1, before: str = ""
    ) -> list[Decoded]:
        good = [replace(each, compression=1.0, logprob=0.0) for each in decode(self, batch, tokenizer, beam, before)]
        return good if len(good) == 1 else [replace(good[0], compression=3.0), *good[1:]]

    monkeypatch.setattr(SpeechDecoder, "decode", first_badly)
    recording = np.concatenate((question(), silence(1)) * 24)
    found, expected = ([step.words for step in heard(each, recording)] for each in (on_a_gpu, whisper))
    assert found == expected


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA failed with error out of memory"),
        RuntimeError("cuBLAS failed with status CUBLAS_STATUS_ALLOC_FAILED"),
        MemoryError(),
    ],
)
def test_a_full_memory_of_the_device_is_named_with_its_remedy(
    on_a_gpu: Whisper, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(on_a_gpu._model, "encode", MagicMock(side_effect=error))
    with pytest.raises(OutOfMemory, match=r"its memory on cpu is full. Try again; if it repeats, lower .* workers"):
        on_a_gpu.transcribe_utterance(question(), "en")
    with pytest.raises(OutOfMemory) as caught:
        heard(on_a_gpu, question())
    assert caught.value.code == code_pb2.RESOURCE_EXHAUSTED


def test_another_error_of_the_model_stays_what_it_is(on_a_gpu: Whisper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_a_gpu._model, "encode", MagicMock(side_effect=RuntimeError("CUDA failed with error x")))
    with pytest.raises(RuntimeError, match="error x"):
        on_a_gpu.transcribe_utterance(question(), "en")


def test_as_many_workers_run_the_model_at_once_as_are_set() -> None:
    recognizer = open_whisper(str(MODELS / "demo-whisper"), "cpu", "int8", 1, workers=2)
    assert recognizer._model.model.num_workers == 2
