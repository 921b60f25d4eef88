"""The cache bench: results for labelled pairs, and its random draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import cache
from bench.cache import synthetic
from bench.cache.pairs import Judged, Labels, Pair, Traffic, divided
from bench.cache.quality import Mode, Nearest, _some, calibrated
from services.cache.config import CacheSettings
from services.cache.engines import DIMENSION
from services.cache.vectors import Vector
from tests.unit.cache.conftest import BagOfWords


def test_duplicates_of_duplicates_are_right_and_a_pairs_own_label_goes_before() -> None:
    labels = Labels([Pair("a", "b", True), Pair("c", "b", True), Pair("a", "d", False), Pair("e", "e", False)])
    assert labels.judge("a", "c") is Judged.RIGHT
    assert labels.judge("d", "a") is Judged.WRONG
    assert labels.judge("d", "c") is Judged.UNLABELLED
    assert labels.judge("d", "d") is Judged.RIGHT
    assert labels.judge("e", "e") is Judged.WRONG


def test_the_loosest_threshold_within_the_limit_is_taken_and_equal_similarities_stand_together() -> None:
    right, wrong = Judged.RIGHT, Judged.WRONG
    nearest = [Nearest(0.9, right, True), Nearest(0.8, wrong, False), Nearest(0.7, right, True)]
    nearest += [Nearest(0.6, right, True), Nearest(0.6, wrong, False)]
    assert calibrated(nearest, 0.2) == {"threshold": 0.7, "found": 0.6667, "wrong_of_lookups": 0.2}
    assert calibrated(nearest, 0) == {"threshold": 0.9, "found": 0.3333, "wrong_of_lookups": 0}
    assert calibrated([Nearest(0.9, wrong, False)], 0)["threshold"] == 1


@pytest.mark.parametrize("apart", [True, False])
async def test_hits_are_counted_over_all_lookups_and_judged_by_the_labels(apart: bool) -> None:
    """The second `b` is the first `a`, word by word, which only the second mode can find."""
    pairs = [
        Pair("how tall is the tower", "how tall is the tower", True),
        Pair("zebra", "how tall is the tower", True),
        Pair("where is the station", "where is the station", False),
        Pair("apples", "pears and plums", False),
    ]
    mode = Mode("pairs", pairs, apart, lambda line: None, Traffic())
    told = await mode.measure(CacheSettings(), WideBagOfWords())
    assert told["found"] == (0.5 if apart else 1)
    assert (told["right"], told["wrong"], told["unlabelled"]) == ((1, 1, 0) if apart else (2, 1, 0))
    assert told["wrong_of_lookups"] == 0.25
    assert told["precision"] == pytest.approx(0.5 if apart else 2 / 3, abs=1e-4)


class WideBagOfWords(BagOfWords):
    """Its vectors have as many numbers as the bench's index."""

    languages = frozenset[str]()

    def embed_batch(self, texts: Sequence[str]) -> list[Vector | None]:
        rows = super().embed_batch(texts)
        return [None if row is None else np.pad(row, (0, DIMENSION - len(row))) for row in rows]


async def test_what_was_judged_is_in_force_for_what_is_measured() -> None:
    """Near misses of the default, all of them right: the threshold becomes as loose as it may."""
    asked = ["how do i", "where can i", "may anybody", "when should people", "who would"]
    texts = [f"{how} find the {number}th of all keys" for how in asked for number in range(150)]
    judged = [Pair(text, f"{text} please", True) for text in texts]
    measured = [Pair(f"{text} here", f"{text} here please", True) for text in texts[:50]]
    mode = Mode("pairs", measured, True, lambda line: None, Traffic(judged, 600))
    told = await mode.measure(CacheSettings(similarity_threshold=0.99, verify_share=1), WideBagOfWords())
    assert isinstance(before := told["before"], dict)
    assert (before["found"], told["found"]) == (0, 1)
    assert (told["verdicts"], told["traffic"], told["threshold"]) == (600, 600, 0.75)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=80), st.integers(0, 5))
def test_no_question_is_both_judged_and_measured(ends: list[tuple[int, int]], seed: int) -> None:
    given_pairs = [Pair(str(a), str(b), False) for a, b in ends]
    parts = divided(given_pairs, seed)
    judged, measured = ({text for pair in part for text in pair[:2]} for part in parts)
    assert not judged & measured
    assert sorted([*parts[0], *parts[1]]) == sorted(given_pairs)


@pytest.mark.parametrize("given", [{"verdicts": 5}, {"lookups": 5}])
async def test_options_that_need_pairs_are_refused_without(given: dict[str, int]) -> None:
    with pytest.raises(cache.REFUSED, match="--verdicts and --lookups: with --pairs"):
        await cache.run(lambda line: None, **given)


def test_lookups_are_drawn_the_same_each_time_and_in_their_order() -> None:
    given = [Pair(str(number), "b", False) for number in range(100)]
    some = _some(given, 10)
    assert some == _some(given, 10) == sorted(some, key=lambda pair: int(pair.a))
    assert len(some) == 10
    assert _some(given, None) == _some(given, 1_000) == given


def test_what_is_drawn_is_the_same_each_time_and_has_neighbours() -> None:
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
