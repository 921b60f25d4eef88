from __future__ import annotations

import re
import tomllib
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.cache_eligibility.choice import KINDS, kinds, looked_at, wordings
from services.gateway.cache_eligibility.wording import Wording, check_phrase

LABELLED: dict[str, Any] = tomllib.loads(Path(__file__).with_name("questions.toml").read_text())
_parser: Any = re._parser  # type: ignore[attr-defined]


def seen(*said: str) -> set[str]:
    return set(kinds(looked_at(said)))


@pytest.mark.parametrize(
    ("kind", "question"), [(kind, each) for kind in (*KINDS, "neither") for each in LABELLED[kind]]
)
def test_a_question_has_its_labelled_kind(kind, question):
    assert (kind in seen(question)) if kind in KINDS else not seen(question)


@pytest.mark.parametrize("given_", LABELLED["wrong"], ids=lambda each: each["question"])
def test_known_misclassifications_are_listed(given_):
    """One that comes right is to be moved to its kind."""
    kind, found = given_["kind"], seen(given_["question"])
    assert found if kind == "neither" else kind not in found


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (["Has my order arrived today?"], {"time_bound": "today", "personal": "my order"}),
        (["And in Bergen?", "What is the weather in Oslo?"], {"time_bound": "weather"}),
    ],
    ids=["both kinds", "earlier turns"],
)
def test_the_words_that_decide_are_returned(said: list[str], found: dict[str, str]):
    assert kinds(looked_at(said)) == found


def test_a_letter_and_its_accent_are_one_character_however_they_were_typed():
    assert seen(unicodedata.normalize("NFD", "Quelle est la météo à Lyon ?")) == {"time_bound"}


def test_a_date_inside_of_a_long_document_is_not_what_is_asked():
    page = "Lorem ipsum dolor sit amet. " * 100
    assert not seen(f"Summarize this.\n{page} The weather today was fine. {page}\nIn one sentence.")
    assert seen(f"What of this holds today?\n{page}") == seen(f"{page}\nWhat of this holds today?") == {"time_bound"}


@given(st.lists(st.text(max_size=50), max_size=20).map(lambda texts: [text * 2_000 for text in texts]))
def test_no_more_than_a_bounded_share_of_a_conversation_is_read(texts):
    assert sum(map(len, looked_at(texts))) <= 4 * 8_192  # lower case may be longer


@given(st.text(alphabet="myour owthisnext 0123 \n\t'*#ordeac", max_size=4_000))
def test_no_text_breaks_it(text):
    assert set(kinds(looked_at([text]))) <= set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_match_has_a_bounded_length(kind):
    """So a look takes time in proportion to the text, whatever it is."""
    wording = wordings()[kind]
    for pattern in (wording._wanted.pattern, wording._unless.pattern):
        assert _parser.parse(pattern).getwidth()[1] < 500


def test_phrases_are_whole_words_with_any_white_space_between():
    wording = Wording(["price list", "cost*"])
    assert [bool(wording.find(text)) for text in ("the price\n list", "costs", "a price lists", "accost")] == [
        *(True, True, False, False)
    ]


@pytest.mark.parametrize("phrase", ["", "   ", "*", "a*b", "a * b", "x" * 201])
def test_an_invalid_phrase_is_refused(phrase):
    with pytest.raises(ValueError, match=r"a phrase of 1 to 200 characters|at the end of a word"):
        check_phrase(phrase)
