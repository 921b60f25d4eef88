"""The cache bench: results for labelled pairs, and its random draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import cache
from bench.cache import synthetic
from bench.cache.pairs import Pair, divided
from bench.cache.quality import Lookups, Nearest, calibrated
from services.cache.config import CacheSettings
from services.cache.engines import DIMENSION
from services.cache.vectors import Vector
from tests.unit.cache.conftest import BagOfWords


def test_the_loosest_threshold_within_the_limit_is_taken_and_equal_similarities_stand_together() -> None:
    nearest = [Nearest(0.9, True), Nearest(0.8, False), Nearest(0.7, True), Nearest(0.6, True), Nearest(0.6, False)]
    assert calibrated(nearest, 0.2) == {"threshold": 0.7, "found": 0.6667, "wrong_of_lookups": 0.2}
    assert calibrated(nearest, 0) == {"threshold": 0.9, "found": 0.3333, "wrong_of_lookups": 0}
    assert calibrated([Nearest(0.9, False)], 0)["threshold"] == 1


async def test_hits_are_counted_over_all_lookups_and_judged_by_the_labels() -> None:
    """The second `b` is the first `a`, word by word, and is compared with its own `a` alone."""
    pairs = [
        Pair("how tall is the tower", "how tall is the tower", True),
        Pair("zebra", "how tall is the tower", True),
        Pair("where is the station", "where is the station", False),
        Pair("apples", "pears and plums", False),
    ]
    figures = await Lookups(pairs, lambda line: None).measure(CacheSettings(), WideBagOfWords())
    assert (figures["found"], figures["wrong_of_lookups"], figures["precision"]) == (0.5, 0.25, 0.5)
    assert (figures["right"], figures["wrong"]) == (1, 1)


class WideBagOfWords(BagOfWords):
    """An engine whose vectors have the dimension of the bench's index."""

    languages = frozenset[str]()

    def embed_batch(self, texts: Sequence[str]) -> list[Vector | None]:
        rows = super().embed_batch(texts)
        return [None if row is None else np.pad(row, (0, DIMENSION - len(row))) for row in rows]


async def test_verified_thresholds_are_in_force_for_the_measurement() -> None:
    """Near misses of the default, all of them right: the threshold becomes as loose as it may."""
    asked = ["how do i", "where can i", "may anybody", "when should people", "who would"]
    texts = [f"{how} find the {number}th of all keys" for how in asked for number in range(150)]
    judged = [Pair(text, f"{text} please", True) for text in texts]
    measured = [Pair(f"{text} here", f"{text} here please", True) for text in texts[:50]]
    lookups = Lookups(measured, lambda line: None, judged, 600)
    figures = await lookups.measure(CacheSettings(similarity_threshold=0.99, verify_share=1), WideBagOfWords())
    assert isinstance(before := figures["before"], dict)
    assert (before["found"], figures["found"]) == (0, 1)
    assert (figures["verdicts"], figures["traffic"], figures["threshold"]) == (600, 600, 0.75)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=80), st.integers(0, 5))
def test_no_question_is_both_judged_and_measured(ends: list[tuple[int, int]], seed: int) -> None:
    given_pairs = [Pair(str(a), str(b), False) for a, b in ends]
    parts = divided(given_pairs, seed)
    judged, measured = ({text for pair in part for text in pair[:2]} for part in parts)
    assert not judged & measured
    assert sorted([*parts[0], *parts[1]]) == sorted(given_pairs)


async def test_verdicts_need_pairs() -> None:
    with pytest.raises(cache.REFUSED, match="--verdicts: with --pairs"):
        await cache.run(lambda line: None, verdicts=5)


def test_synthetic_entries_are_reproducible_and_have_neighbours() -> None:
    around = synthetic.beside(_units(20), np.random.default_rng(1), 0.9, 0.95)
    assert len(set(synthetic.questions())) == synthetic.QUESTIONS
    rows = np.concatenate(list(synthetic.entries(around, 2_500)))
    assert np.array_equal(rows, np.concatenate(list(synthetic.entries(around, 2_500))))
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-4)
    asked = synthetic.beside(rows[[3, 2_400]], np.random.default_rng(2), 0.8, 0.99)
    near = synthetic.nearest(around, 2_500, asked, 5, 0.75)
    similarities = asked @ rows.T
    for found, row in zip(near, similarities, strict=True):
        assert found == {int(each) for each in np.argsort(-row)[:5] if row[each] >= 0.75}
    assert 3 in near[0]
    assert 2_400 in near[1]


def _units(count: int) -> Vector:
    rows: Vector = np.random.default_rng(0).standard_normal((count, 384)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
