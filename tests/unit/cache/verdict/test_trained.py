"""What an operator's pairs were made into, as it is read and written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.cache.verdict import trained
from services.cache.verdict.trained import FILE, Threshold, Trained, Unusable
from tests.unit.cache.verdict.made import made


def test_what_is_written_is_read(tmp_path: Path) -> None:
    whole = made(thresholds={0.01: 0.9, 0.02: 0.8})
    trained.write(tmp_path, whole)
    assert trained.read(tmp_path, whole.embedder) == whole
    assert [file.name for file in tmp_path.iterdir()] == [FILE]


def test_the_loosest_threshold_that_holds_the_limit_is_the_one() -> None:
    known = made(thresholds={0.005: 0.95, 0.01: 0.9, 0.02: 0.8})
    assert [known.least(wrong) for wrong in (0.02, 0.015, 0.01, 0.007)] == [0.8, 0.9, 0.9, 0.95]


def test_a_limit_that_nothing_was_certified_for_allows_no_hit() -> None:
    assert made(thresholds={0.01: 0.9}).least(0.001) > 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "format: 1 is what this version reads, got 2"),
        ({"weights": {"cosine": 1.0}}, "weights: one for each of cosine, verifier, overlap, fewer"),
        ({"floor": 0.2}, "floor"),
        ({"unheard_of": 1}, "unheard_of"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path: Path, change: dict[str, object], said: str) -> None:
    whole = made().model_dump() | change
    (tmp_path / FILE).write_text(json.dumps(whole))
    with pytest.raises(Unusable, match=said):
        trained.read(tmp_path, "bag of words")


def test_another_embedder_is_refused(tmp_path: Path) -> None:
    trained.write(tmp_path, made())
    with pytest.raises(Unusable, match="was made for bag of words, and the cache embeds with another"):
        trained.read(tmp_path, "another")


def test_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="No such file"):
        trained.read(tmp_path / "none", "bag of words")


def test_a_threshold_is_a_share() -> None:
    with pytest.raises(ValueError, match="less than or equal to 1"):
        Threshold(wrong=1.5, score=0.9, lookups=1, wrong_hits=0, found=0)
    assert Trained.model_validate(made().model_dump())
