"""Where a run goes on from what is confirmed."""

from __future__ import annotations

import pytest

from services.audio.alignment import after, in_order, plain
from tests.unit.audio.voices import said, texts

RUNS = {
    "nothing is confirmed": ("", said("which", "city"), 0, "which city"),
    "confirmed already": ("Which city", said("which", "city", "is"), 0, "is"),
    "heard much later": ("Which", said("Which", "city", from_s=0.7), 0, "city"),
    "said twice": ("no", said("no", "no", "fox"), 0, "no fox"),
    "now heard differently": ("is nine", said("is", "9", "minus"), 0, "minus"),
    "the echo of a word that ended where the run starts": ("Which", said("which", "city", from_s=0.4), 0.4, "city"),
    "a word of which the run heard the end alone": ("semantic cache", said("cache", "is", from_s=0.4), 0.2, "is"),
}


@pytest.mark.parametrize("case", RUNS)
def test_a_run_goes_on_behind_what_is_confirmed(case: str) -> None:
    confirmed, run, start_s, new = RUNS[case]
    assert texts(after(said(*confirmed.split()), run, start_s)) == new.split()


def test_a_word_is_compared_with_its_marks_and_without_its_punctuation() -> None:
    assert plain("Nine,") == plain("nine")
    assert plain("की।") == plain("की")
    assert plain("की") != plain("का")


def test_times_never_go_back() -> None:
    ordered = in_order([*said("a", from_s=1), *said("b", from_s=0.5)], 0.8)
    assert [(word.start_s, word.end_s) for word in ordered] == [(1.0, 1.4), (1.0, 1.0)]
