"""Whispers of every shape load and run, whatever files lie beside their weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from services.audio.speech import RATE, Audio
from services.audio.whisper import WindowLengths, open_whisper, window_lengths
from tests.random_whisper import LANGUAGES, Shape, write_whisper

pytestmark = pytest.mark.timeout(120)


def noise(seconds: float) -> Audio:
    return np.random.default_rng(0).normal(0, 0.1, round(seconds * RATE)).astype(np.float32)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(),
        Shape(mels=128),  # large-v3 and turbo, without the file that says so
        Shape(mels=128, preprocessor={"feature_size": 128, "chunk_length": 30, "n_fft": 400, "hop_length": 160}),
        Shape(decoder_layers=4, alignment_heads=((2, 0), (3, 1))),
    ],
    ids=["80 mels", "128 mels", "128 mels, described", "deeper decoder"],
)
def test_a_whisper_of_any_shape_runs(tmp_path: Path, shape: Shape) -> None:
    whisper = open_whisper(str(write_whisper(tmp_path / "whisper", shape)), "cpu", "int8", 1)
    found = whisper.transcribe_utterance(noise(2), "")
    assert found.language in {"", *shape.languages}
    assert all(0 <= word.start_s <= word.end_s <= 30 for word in found.words)
    assert whisper.cost_s(1) > 0


def test_a_whisper_knows_the_languages_that_its_tokenizer_has(tmp_path: Path) -> None:
    for languages in (LANGUAGES, (*LANGUAGES, "yue")):
        whisper = open_whisper(str(write_whisper(tmp_path / "whisper", Shape(languages=languages))), "cpu", "int8", 1)
        assert set(whisper.languages) == set(languages)


def test_a_folder_without_a_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "model.bin").touch()
    with pytest.raises(ValueError, match=r"tokenizer\.json: required beside model\.bin"):
        open_whisper(str(tmp_path), "cpu", "int8", 1)


def test_a_model_without_alignment_heads_is_refused(tmp_path: Path) -> None:
    folder = write_whisper(tmp_path / "whisper", Shape(alignment_heads=None))
    with pytest.raises(ValueError, match=r"alignment_heads: required in .*config\.json; convert the model"):
        open_whisper(str(folder), "cpu", "int8", 1)


@pytest.mark.parametrize(
    ("said", "lengths"),
    [
        (None, WindowLengths(10, 30)),
        ("{}", WindowLengths(10, 30)),
        ('{"shortest_window_s": 5, "longest_window_s": 10}', WindowLengths(5, 10)),
    ],
)
def test_a_model_says_which_windows_it_bears(tmp_path: Path, said: str | None, lengths: WindowLengths) -> None:
    if said:
        (tmp_path / "preprocessor_config.json").write_text(said)
    assert window_lengths(tmp_path) == lengths
