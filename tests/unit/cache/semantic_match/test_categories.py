"""A category of a tenant's questions has a threshold of its own. Scores and truth are simulated."""

from __future__ import annotations

import logging
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cache.semantic_match import record as records
from services.cache.semantic_match.record import DECISIONS, FLOOR, Records
from services.cache.semantic_match.thresholds import Thresholds
from services.cache.semantic_match.traffic import Traffic
from tests.examples import examples

ALLOWED, DEFAULT = 0.01, 0.98
CHAT, DOSAGES, PLAIN = Traffic("acme", "chat"), Traffic("acme", "dosages"), Traffic("acme")
WRONG = {CHAT: 0.01, DOSAGES: 0.9}  # of candidates with a score of 0.75; none with one of 1
REPORTS = st.lists(st.tuples(st.booleans(), st.integers(150, 200), st.booleans()), min_size=1, max_size=300)


class TwoCategories:
    """A simulation: nine of ten lookups are chit-chat, the others about dosages, which are wrong far more often. Half
    of either have a candidate, whose score is even from 0.75 to 1. `apart`: whether lookups name their
    category."""

    def __init__(self, seed: str, apart: bool):
        self.rng, self.apart, self.thresholds = random.Random(seed), apart, Thresholds(DEFAULT, ALLOWED)

    def labelled(self, traffic: Traffic) -> Traffic:
        return traffic if self.apart else PLAIN

    def pass_by(self, lookups: int) -> None:
        for _ in range(lookups):
            traffic = CHAT if self.rng.random() < 0.9 else DOSAGES
            reported, candidate = self.labelled(traffic), self.rng.random() < 0.5
            self.thresholds.look_up(reported, candidate)
            if candidate:
                score = self.rng.uniform(FLOOR, 1)
                right = self.rng.random() >= WRONG[traffic] * (1 - score) / (1 - FLOOR)
                self.thresholds.verify(reported, score, score >= self.thresholds.of(reported), right)

    def wrong_share(self, traffic: Traffic) -> float:
        """The true share of wrong hits at the threshold in force."""
        threshold = self.thresholds.of(self.labelled(traffic))
        return 0.5 * WRONG[traffic] * min((1 - threshold) / (1 - FLOOR), 1) ** 2 / 2 if threshold < 1 else 0.0


def test_with_one_threshold_for_both_the_riskier_category_is_beyond_its_bound_and_with_its_own_within() -> None:
    runs, exceeded = 10, Counter[bool]()
    for run in range(runs):
        for apart in (True, False):
            two, worst = TwoCategories(f"run {run}", apart), 0.0
            for _ in range(10):
                two.pass_by(300)
                worst = max(worst, *map(two.wrong_share, WRONG))
            exceeded[apart] += worst > ALLOWED
    assert exceeded[False] == runs
    assert exceeded[True] / runs <= 0.05 + 0.207  # three standard deviations


def test_with_its_own_threshold_chit_chat_is_found_where_dosages_are_not() -> None:
    two = TwoCategories("apart", apart=True)
    two.pass_by(20_000)
    assert two.thresholds.of(CHAT) == FLOOR
    assert two.thresholds.of(DOSAGES) > 0.92
    assert two.thresholds.of(PLAIN) == DEFAULT


@settings(deadline=None, max_examples=examples(30))
@given(reports=st.lists(st.tuples(st.booleans(), st.integers(150, 200), st.booleans()), min_size=1, max_size=20))
def test_verification_of_one_category_changes_no_other(reports: list[tuple[bool, int, bool]]) -> None:
    reports = [each for each in reports for _ in range(60)]  # enough of them to move a threshold
    both, alone = Thresholds(DEFAULT, ALLOWED), Thresholds(DEFAULT, ALLOWED)
    for of_chat, score, right in reports:
        both.look_up(CHAT if of_chat else DOSAGES, True)
        both.verify(CHAT if of_chat else DOSAGES, score / 200, True, right)
        if of_chat:
            alone.look_up(CHAT, True)
            alone.verify(CHAT, score / 200, True, right)
    assert both.of(CHAT) == alone.of(CHAT)
    assert (both.of(PLAIN), both.of(Traffic("globex", "chat"))) == (DEFAULT, DEFAULT)
    assert both.measured.samples == len(reports)


def certified(max_wrong: float = ALLOWED) -> Thresholds:
    """Thresholds after 2,000 verdicts on dosages: eight below 0.8 were wrong, and a quarter of the lookups have a
    candidate."""
    kept = Thresholds(DEFAULT, max_wrong)
    for number in range(2_000):
        for candidate in (True, False, False, False):
            kept.look_up(DOSAGES, candidate)
        kept.verify(DOSAGES, 0.78 if number % 250 == 0 else 0.99, True, number % 250 != 0)
    return kept


def test_a_category_may_ask_for_fewer_wrong_hits_and_never_for_more() -> None:
    kept = certified()
    assert kept.for_lookup(DOSAGES) == FLOOR
    for asked, threshold in ((0.002, 0.781), (0.5, FLOOR), (0.0001, DEFAULT), (1.0, FLOOR)):
        assert kept.for_lookup(DOSAGES, asked) == kept.of(DOSAGES) == threshold
    strict = certified(max_wrong=0.002)
    assert [strict.for_lookup(DOSAGES, asked) for asked in (1.0, 0.5, 0.01)] == [0.781] * 3


@settings(deadline=None)
@given(reports=REPORTS, asked=st.floats(0.0001, ALLOWED), default=st.sampled_from([0.8, 0.95, DEFAULT, 1.0]))
def test_a_smaller_share_of_wrong_hits_never_gets_a_looser_threshold(
    reports: list[tuple[bool, int, bool]], asked: float, default: float
) -> None:
    kept = Thresholds(default, ALLOWED)
    for candidate, score, right in reports:
        kept.look_up(DOSAGES, candidate)
        kept.verify(DOSAGES, score / 200, True, right)
    assert kept.for_lookup(DOSAGES, asked) >= kept.for_lookup(DOSAGES)


def test_with_too_few_samples_for_a_requested_share_the_services_threshold_is_in_force() -> None:
    kept = Thresholds(0.8, ALLOWED)
    for number in range(150):
        for candidate in (True, False, False, False):
            kept.look_up(DOSAGES, candidate)
        kept.verify(DOSAGES, 0.85, True, right=number > 1)
    assert kept.for_lookup(DOSAGES, 0.005) == kept.for_lookup(DOSAGES) > 0.85


def test_gateways_that_allow_for_different_shares_move_no_threshold_of_each_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Their lookups alternate, as with two gateways on one cache; each alarm is logged once."""
    kept = certified_and_wrong()
    alone = {asked: certified_and_wrong().for_lookup(DOSAGES, asked) for asked in (1.0, 0.002)}
    assert alone[1.0] < alone[0.002]
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for asked in (1.0, 0.002) * 5:
            assert kept.for_lookup(DOSAGES, asked) == alone[asked]
            for other in (1.0, 0.002):
                assert kept.of(DOSAGES, other) == alone[other], f"while lookups ask for {asked}"
    assert kept.alarms == 1
    assert caplog.text.count("more than 0.002 of its lookups") == 1
    for _ in range(2_000):
        kept.verify(DOSAGES, 0.8, True, False)
    assert kept.of(DOSAGES, 0.002) > 0.8, "new verdicts count for each threshold"
    assert kept.of(DOSAGES, 1.0) > 0.8


def certified_and_wrong() -> Thresholds:
    kept = certified()
    for _ in range(40):
        kept.verify(DOSAGES, 0.99, True, False)
    return kept


def test_a_few_requested_shares_are_cached_and_all_thresholds_are_right() -> None:
    kept, shares = certified(), [0.0001 + 0.0001 * number for number in range(30)]
    record = kept._held(DOSAGES)
    assert record

    def alone(share: float) -> float:
        another = Thresholds(DEFAULT, ALLOWED)
        another.resume(DOSAGES, record.row)
        return another.for_lookup(DOSAGES, share)

    expected = [alone(share) for share in shares]
    assert len(set(expected)) > 2
    for _ in range(2):
        assert [kept.for_lookup(DOSAGES, share) for share in shares] == expected
    assert [kept.of(DOSAGES, share) for share in shares] == expected
    assert len(record.decisions) == DECISIONS
    assert record.max_wrong == shares[-1]


def test_a_requested_share_holds_for_later_verifications() -> None:
    kept = certified()
    kept.for_lookup(DOSAGES, 0.002)
    kept.verify(DOSAGES, 0.99, True, True)
    assert kept.of(DOSAGES) == 0.781


def test_after_a_restart_a_stricter_category_is_as_it_was_and_raises_no_second_alarm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = certified()
    for _ in range(40):
        kept.verify(DOSAGES, 0.99, True, False)
        kept.for_lookup(DOSAGES, 0.002)
    assert kept.alarms == 1
    before = kept._held(DOSAGES)
    assert before
    caplog.clear()
    again = Thresholds(DEFAULT, ALLOWED)
    with caplog.at_level(logging.WARNING):
        assert again.resume(DOSAGES, before.row)
        assert again.of(DOSAGES) == kept.of(DOSAGES)
        assert again.for_lookup(DOSAGES, 0.002) == kept.of(DOSAGES)
    assert (again.alarms, caplog.text) == (0, "")


USES = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 20)), max_size=200)


@given(uses=USES)
def test_a_tenant_with_an_even_share_of_the_records_or_less_loses_none(uses: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "RECORDS", 10)
        kept, used = Records(), dict.fromkeys("abcde", frozenset[str]())
        for tenant, category in uses:
            traffic = Traffic(tenant, str(category))
            record = kept.use(traffic, DEFAULT)
            assert kept.get(traffic) is record
            used[tenant] |= {traffic.category}
        for tenant, categories in used.items():
            if len(categories) <= 2:
                assert set(kept.of(tenant)) == categories
        distinct = sum(map(len, used.values()))
        assert len(list(kept)) == min(10, distinct)


def test_among_tenants_with_as_many_records_the_one_that_was_there_least_recently_loses_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records, "RECORDS", 2)
    kept = Records()
    for tenant in ("acme", "globex", "acme", "umbra"):
        kept.use(Traffic(tenant), DEFAULT)
    assert [traffic.tenant for traffic, _ in kept] == ["acme", "umbra"]


def test_a_removed_tenant_is_forgotten_with_all_its_categories() -> None:
    kept = Thresholds(DEFAULT, ALLOWED, "engine")
    theirs = Traffic("globex", "dosages")
    for traffic in (PLAIN, CHAT, DOSAGES, theirs):
        for _ in range(60):
            kept.verify(traffic, 0.99, True, False)
    kept.forget("acme")
    assert [kept.of(traffic) for traffic in (PLAIN, CHAT, DOSAGES)] == [DEFAULT] * 3
    assert kept.of(theirs) > DEFAULT
    assert [traffic for traffic, _ in kept.news()] == [theirs, Traffic("")]
    assert (kept.by_category("acme"), set(kept.by_category("globex"))) == ({}, {"dosages"})
