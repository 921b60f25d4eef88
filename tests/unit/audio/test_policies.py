"""Properties of both policies for confirming words, for any output of a model."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.audio.agreement import Agreement
from services.audio.alignment import Span
from services.audio.speech import Word
from services.audio.windows import Windows
from tests.examples import examples
from tests.unit.audio.voices import Hearing, speech, texts

WINDOW_S, TRIM_S, STEP_S = 5.0, 7.0, 0.3
Policy = Agreement | Windows
each_policy = pytest.mark.parametrize(
    ("policy", "longest_s"),
    [(lambda: Agreement(0.0, TRIM_S), 3 * TRIM_S), (lambda: Windows(0.0, WINDOW_S, 0.5), WINDOW_S + 1e-9)],
    ids=["local agreement", "windows"],
)


def listen(words: Policy, hearing: Hearing) -> tuple[list[tuple[Word, ...]], list[Span]]:
    """Everything that is said, in packets of 200 ms: what was confirmed after each run of the model, and the runs."""
    confirmed, spans, now, stop_s = [], [], 0.0, hearing.spoken[-1].end_s + 0.2
    while now < stop_s:
        now = min(stop_s, now + 0.2)
        while span := words.next(now, now == stop_s, STEP_S):
            spans.append(span)
            words.take(hearing(span), span)
            confirmed.append(words.confirmed)
    words.finish()
    return [*confirmed, words.confirmed], spans


@each_policy
@settings(deadline=None, max_examples=examples(60))
@given(spoken=speech())
def test_the_words_of_a_perfect_model_are_confirmed_as_they_were_said(
    policy: Callable[[], Policy], longest_s: float, spoken: list[Word]
) -> None:
    history, spans = listen(policy(), Hearing(spoken))
    assert texts(history[-1]) == texts(spoken)
    assert all(span.stop_s - span.start_s <= longest_s for span in spans)


@each_policy
@settings(deadline=None, max_examples=examples(60))
@given(spoken=speech(), seed=st.integers(0, 100))
def test_confirmed_words_stay_and_are_in_order_however_wrong_their_times_are(
    policy: Callable[[], Policy], longest_s: float, spoken: list[Word], seed: int
) -> None:
    history, spans = listen(policy(), Hearing(spoken, off_s=0.3, seed=seed))
    for earlier, later in pairwise(history):
        assert later[: len(earlier)] == earlier
    starts = [word.start_s for word in history[-1]]
    assert starts == sorted(starts)
    assert all(span.stop_s - span.start_s <= longest_s for span in spans)
