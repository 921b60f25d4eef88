from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.chat.v1.chat_pb2 import Sampling
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.cache_eligibility.choice import CacheEligibility, choose
from services.gateway.cache_eligibility.settings import CategorySettings, HitSettings
from services.gateway.labels import Bypassed

PLAIN, TODAY, MINE = "What is the capital of France?", "What's the weather today?", "Where is my order?"
PRICES = {"prices": CategorySettings(words=("price*", "how much"), ttl_ms=60_000)}
LEVELS = st.sampled_from(["off", "exact", "any"])
_ORDER = ("off", "exact", "any")


def chosen(*said: str, policy: dict[str, Any] | None = None, sampling: dict[str, Any] | None = None, **settings: Any):
    given_ = HitSettings.model_validate(settings)
    return choose(pb.CachePolicy(**(policy or {})), Sampling(**(sampling or {})), said, given_)


def test_a_plain_question_may_hit_as_it_likes():
    assert chosen(PLAIN) == chosen(PLAIN, sampling={"temperature": 0}) == CacheEligibility()


@pytest.mark.parametrize(
    ("said", "sampling", "reason", "words"),
    [
        (TODAY, {}, Bypassed.TIME_BOUND, "weather"),
        (MINE, {}, Bypassed.PERSONAL, "my order"),
        (PLAIN, {"temperature": 0.5}, Bypassed.SAMPLED, "a temperature of 0.5"),
    ],
)
def test_a_question_of_a_kind_hits_only_where_setting_or_request_allows_it(said, sampling, reason, words):
    by_default = chosen(said, sampling=sampling)
    assert (by_default.allowed_hits, by_default.reason, by_default.words) == ("off", reason, words)
    assert chosen(said, sampling=sampling, **{reason: "exact"}).allowed_hits == "exact"
    assert chosen(said, sampling=sampling, **{reason: "any"}) == CacheEligibility()
    asked = {"allow": [pb.QuestionKind.Value(f"QUESTION_KIND_{reason.name}")]}
    assert chosen(said, sampling=sampling, policy=asked) == CacheEligibility()


def test_an_answer_that_is_drawn_is_drawn_for_each():
    assert chosen(PLAIN, sampling={"temperature": 1}).drawn
    assert chosen(TODAY, sampling={"temperature": 1}).drawn
    assert not chosen(TODAY).drawn
    assert not chosen(PLAIN, sampling={"temperature": 1}, sampled="exact").drawn


def test_with_a_seed_the_same_is_wanted_again():
    seeded = chosen(PLAIN, sampling={"temperature": 1, "seed": 0})
    assert (seeded.allowed_hits, seeded.reason, seeded.drawn) == ("exact", Bypassed.SAMPLED, False)


def test_a_category_is_found_by_its_words_or_named_and_has_a_time_of_its_own():
    assert chosen("What is the PRICE of a ticket?", categories=PRICES) == CacheEligibility(
        category="prices", ttl_ms=60_000
    )
    assert chosen(PLAIN, categories=PRICES) == CacheEligibility()
    assert chosen(PLAIN, policy={"category": "prices"}, categories=PRICES).category == "prices"
    both = {name: CategorySettings(words=("fare",), ttl_ms=ttl) for name, ttl in (("b", 1), ("a", 2))}
    assert chosen("The fare?", categories=both).category == "b", "the first of two matching categories"


@pytest.mark.parametrize(
    ("word", "said", "is_meant"),
    [
        ("天气", "今天天气怎么样", True),
        ("ราคา", "ขอทราบราคาทอง", True),
        ("料金", "Suicaの料金は?", True),
        ("बिल", "मेरा बिल कितना है", True),
        ("बिल", "बिल्ली क्या खाती है", False),  # a bill is no cat
        ("बिल*", "बिल्ली क्या खाती है", True),
        ("fare", "Is it fairly warm, or a farewell?", False),
    ],
)
def test_the_words_of_a_category_are_found_in_scripts_without_blanks_and_with_marks(word, said, is_meant):
    categories = {"found": CategorySettings(words=(word,), ttl_ms=1)}
    assert (chosen(said, categories=categories).category == "found") is is_meant


def test_a_category_makes_a_time_bound_question_an_exact_one_and_a_personal_one_not():
    bounded = chosen("How much is it today?", categories=PRICES)
    assert (bounded.allowed_hits, bounded.reason, bounded.ttl_ms) == ("exact", Bypassed.TIME_BOUND, 60_000)
    assert chosen("How much is my bill?", categories=PRICES).allowed_hits == "off"


@given(LEVELS, LEVELS, st.permutations([TODAY, MINE, PLAIN]))
def test_a_question_of_several_kinds_gets_the_strictest_rule(time_bound, personal, said):
    got = chosen(*said, time_bound=time_bound, personal=personal)
    assert got.allowed_hits == min((time_bound, personal), key=_ORDER.index)
    assert (got.reason is None) == (got.allowed_hits == "any")


@pytest.mark.parametrize(
    "settings",
    [
        {"categories": {"Prices": {"ttl_ms": 1}}},
        {"categories": {"prices": {"ttl_ms": 0}}},
        *({"categories": {"prices": {"ttl_ms": 1, "max_wrong": share}}} for share in (0, 1.1, float("nan"))),
        {"categories": {"prices": {"words": ["*"], "ttl_ms": 1}}},
        {"sampled": "yes"},
        {"sample": "any"},
    ],
)
def test_settings_that_mean_nothing_are_refused(settings):
    with pytest.raises(ValueError, match=r"categories|sampled|sample"):
        HitSettings.model_validate(settings)
