from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from services.gateway.guard.denied import Denied, TooSlow
from services.gateway.settings.guard import GuardSettings


def spans(text: str, phrases: list[str] = [], patterns: list[str] = []) -> list[str]:  # noqa: B006  # it only reads
    return [text[each.start : each.end] for each in Denied(phrases, patterns, 1_000).find(text, 0)]


def test_a_phrase_is_whole_words_however_they_are_capitalized_and_spaced():
    text = "PROJECT  titan, project\ntitan, projects titan, project titanium."
    assert spans(text, ["Project Titan"]) == ["PROJECT  titan", "project\ntitan"]


def test_a_phrase_of_a_language_without_blanks_needs_no_borders():
    assert spans("这是机密文件。", ["机密"]) == ["机密"]


def test_signs_of_a_phrase_are_no_pattern():
    assert spans("a.b axb C++ c+", ["a.b", "c++"]) == ["a.b", "C++"]


def test_the_work_of_other_threads_is_no_time_of_a_pattern():
    slow = Denied([], ["(?:(a|ab){1,20}(c|bcd){1,10}(d{0,9}){1,5})z"], 1_000)  # 0.04 s of processor time
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            sum(range(1_000))

    other = threading.Thread(target=work)
    other.start()
    try:
        assert slow.find("a" * 3_000 + "ab" * 2_000, 0) == []
    finally:
        over.set()
        other.join()


def test_a_pattern_takes_no_longer_than_it_may():
    with pytest.raises(TooSlow, match="longer than 1 ms"):
        Denied([], [r"(a{1,14}){1,14}b"], 1).find("a" * 200, 0)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("a*", "a match of 1 to 200 characters, got 0 to"),
        ("a+", "a match of 1 to 200 characters, got 1 to"),
        ("a{201}", "got 201 to 201"),
        ("(?=x)y", "got assert:"),
        ("^x", "got at_beginning"),
        ("x$", "got at_end"),
        (r"(a)\1", "got groupref"),
        ("(a", "a regular expression"),
        ("", "1 to 800 characters"),
    ],
)
def test_a_pattern_without_a_bound_is_refused_with_the_reason(pattern: str, why: str):
    with pytest.raises(ValidationError, match=why.replace("(", r"\(")):
        GuardSettings(denied_patterns=(pattern,))


@pytest.mark.parametrize("phrase", ["", "  ", "x" * 201])
def test_a_phrase_that_is_none_is_refused(phrase: str):
    with pytest.raises(ValidationError, match="a phrase of 1 to 200 characters"):
        GuardSettings(denied_phrases=(phrase,))


@given(
    st.lists(
        st.sampled_from(["titan", "project ", "Project\n", "x", " y", "-", "\u673a\u5bc6", "a" * 300, "xab"]),
        max_size=40,
    ),
    st.integers(0, 3),
)
def test_the_same_phrases_are_denied_in_a_growing_text_and_in_the_whole(pieces: list[str], start: int):
    denied = Denied(["Project Titan", "titan", "\u673a\u5bc6", "-x"], [r"\bx[a-z ]{1,9}y\b", "a{1,3}"], 1_000)
    growing, text = denied.search(start), "." * start
    for piece in pieces:
        text += piece
        growing.look(text)
    assert growing.find(text) == denied.find(text, start)
