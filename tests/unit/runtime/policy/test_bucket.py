from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.policy.bucket import ExtraBudget, TokenBucket
from tests.clock import PausedClock

AMOUNTS = st.floats(0.01, 50)


def emptied(rate_per_s: float, burst: float, clock: PausedClock) -> TokenBucket:
    bucket = TokenBucket(rate_per_s, burst, clock)
    bucket.force(burst)
    return bucket


def test_a_bucket_starts_full_and_gives_no_more_than_it_has():
    bucket = TokenBucket(1, 2, PausedClock())
    assert [bucket.take() for _ in range(3)] == [True, True, False]


def test_forced_tokens_are_a_debt_that_time_pays():
    clock = PausedClock()
    bucket = TokenBucket(10, 3, clock)
    bucket.force(8)
    assert bucket.level() == -5
    assert bucket.wait_s() == pytest.approx(0.6)
    clock.advance(0.5)
    assert not bucket.take()
    clock.advance(0.1)
    assert bucket.take()


def test_returned_tokens_do_not_exceed_the_burst():
    bucket = TokenBucket(0, 3, PausedClock())
    bucket.take(2)
    bucket.put(1)
    assert bucket.level() == 2
    bucket.put(5)
    assert bucket.level() == 3


def test_the_wait_for_unreachable_tokens_is_infinite():
    assert emptied(0, 3, PausedClock()).wait_s() == float("inf")
    assert TokenBucket(1, 3, PausedClock()).wait_s(4) == float("inf")
    assert TokenBucket(0, 3, PausedClock()).wait_s(3) == 0


def test_a_new_rate_counts_from_now_on():
    clock = PausedClock()
    bucket = emptied(1, 100, clock)
    clock.advance(5)
    bucket.rate_per_s = 10
    clock.advance(1)
    assert (bucket.level(), bucket.rate_per_s) == (pytest.approx(15), 10)


def test_the_time_since_the_last_look_fills_a_bucket_to_its_new_burst():
    clock = PausedClock()
    bucket = TokenBucket(1, 3, clock)
    clock.advance(4)
    bucket.burst = 9
    assert bucket.level() == pytest.approx(7)


def test_a_smaller_burst_takes_away_what_is_above_it():
    bucket = TokenBucket(0, 100, PausedClock())
    bucket.burst = 10
    assert bucket.level() == 10
    bucket.burst = 100
    assert (bucket.level(), bucket.burst) == (10, 100)


@given(rate=st.floats(0.1, 1_000), burst=AMOUNTS, steps=st.lists(st.tuples(st.floats(0, 5), AMOUNTS), max_size=50))
def test_a_bucket_never_gives_more_than_burst_and_rate_allow(rate, burst, steps):
    clock = PausedClock()
    bucket = TokenBucket(rate, burst, clock)
    elapsed = given_out = 0.0
    for seconds, amount in steps:
        clock.advance(seconds)
        elapsed += seconds
        given_out += amount * bucket.take(amount)
        assert 0 <= bucket.level() <= burst
        assert given_out <= burst + rate * elapsed + 1e-3


@given(rate=st.floats(0.1, 1_000), start=st.floats(-50, 1), amount=AMOUNTS)
def test_after_the_wait_it_names_a_bucket_gives(rate, start, amount):
    clock = PausedClock()
    bucket = TokenBucket(rate, 50, clock)
    bucket.force(50 - start)
    clock.advance(bucket.wait_s(amount))
    assert bucket.take(amount)


@given(
    share=st.floats(0, 1),
    burst=st.floats(1, 20),
    start=st.just(0) | st.floats(0, 30),
    quiet=st.just(0) | st.integers(0, 500),
    run=st.lists(st.booleans(), max_size=300),
)
def test_in_any_run_of_requests_there_are_at_most_its_share_and_what_was_saved_up(share, burst, start, quiet, run):
    budget = ExtraBudget(share, burst, start)
    for _ in range(quiet):
        budget.seen()
    spent, saved = 0, min(start + share * quiet, burst)
    for seen, wants in enumerate(run, 1):
        budget.seen()
        spent += wants and budget.spend()
        assert spent <= share * seen + saved + 1e-3


def test_all_of_the_share_can_be_spent():
    budget = ExtraBudget(0.05, 10)
    spent = 0
    for _ in range(1_000):
        budget.seen()
        spent += budget.spend()
    assert spent == 50


def test_an_extra_call_that_was_not_made_can_be_made_later():
    budget = ExtraBudget(1, 10)
    budget.seen()
    assert budget.spend()
    budget.refund()
    assert budget.spend()
    assert not budget.spend()


def test_extra_calls_that_are_not_needed_here_can_be_spent_elsewhere():
    saving, other = ExtraBudget(share=0.5, burst=10), ExtraBudget(share=0.5, burst=2)
    for _ in range(8):
        saving.seen()
    drawn = saving.draw(keep=1)
    assert (drawn, saving.level, saving.draw(keep=1)) == (3, 1, 0)
    other.put(drawn)
    assert other.level == 2  # the excess is lost
