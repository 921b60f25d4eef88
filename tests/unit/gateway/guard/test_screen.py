from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.gateway.guard.denied import Denied
from services.gateway.guard.screen import Screen
from services.runtime.security.credentials import SECRETS
from services.runtime.security.personal_data import PERSONAL
from services.runtime.security.private_data import Names, find, masked, merged

ALL = (*SECRETS, *PERSONAL)
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow. IBAAK\n\nCAQEA! x\n-----END RSA PRIVATE KEY-----"
PRIVATE = (
    *("anna@example.com", "+49 (0)30 123 456-78", "4111 1111 1111 1111", "DE89 3704 0044 0532 0130 00", "12345678Z"),
    *("AKIAIOSFODNN7EXAMPLE", "password: hunter2!x", "api_key = 'abcDEF123456'", KEY, KEY[:60]),
    *("postgres://bob:s3cret@db", "call me at 5551234567", "Dr. Who. 123-45-6789"),
)
DENIED = ("Project  Titan", "project\ntitan", "Titan", "AB-1234", "AB-12")
SIGNS = (". ", "! ", "?\n", "\n\n", "。", "… ", " ", ", ", "e.g. ", "3.14", "No. 5 ", '." ')
PIECES = st.sampled_from([*PRIVATE, *DENIED, *SIGNS, "a", "Hello", "über", "漢字"])
JOINED = [  # no sentence and no word ends there
    *("anna@example.com", "4111111111111111", "+4930123456", "DE89370400440532013000", "12345678Z", "://bob:s3cret@db"),
    *("AKIAIOSFODNN7EXAMPLE", "password:hunter2!x", "sk-abcdefghijklmnopqrstuv", "eyJ" + "a" * 1_900, ".eyJ"),
    *('"', "(", "/"),
]
TEXT = st.lists(PIECES, max_size=14).map("".join)
CUTS = st.lists(st.integers(1, 30), min_size=1, max_size=40)


def denied() -> Denied:
    return Denied(["project titan"], [r"AB-\d{4}", r"\btitan\b"], most_ms=1_000)


def chunks(text: str, cuts: Sequence[int]) -> list[str]:
    found, at = [], 0
    while at < len(text):
        size = cuts[len(found) % len(cuts)]
        found.append(text[at : at + size])
        at += size
    return found


def ends_with_finding(text: str) -> bool:
    found = find(f"So: {text}", ALL)
    return bool(found) and found[-1].end == len(f"So: {text}")


def streamed(text: str, cuts: Sequence[int], what: Denied | None) -> list[str]:
    screen = Screen(ALL, what)
    return [*(screen.feed(chunk).text for chunk in chunks(text, cuts)), screen.close().text]


def whole(text: str, what: Denied | None) -> str:
    found = [*find(text, ALL), *(what.find(text, 0) if what else [])]
    return masked(text, merged(sorted(found, key=lambda each: (each.start, -each.end))), Names())


@pytest.mark.parametrize("what", [None, denied()], ids=["rules", "also what a tenant denies across sentences"])
@given(TEXT, CUTS)
@example(f"password: hunter2!x{KEY}", [1])
def test_sentences_are_masked_as_the_whole_text_would_be(what: Denied | None, text: str, cuts: list[int]):
    assert "".join(streamed(text, cuts, what)) == whole(text, what)


@given(st.integers(1, 60))
def test_a_text_without_a_sentences_end_leaves_all_the_same(size: int):
    text = "word " * 3_000 + "anna@example.com " + "word " * 1_500
    left = streamed(text, [size * 10], None)
    assert "".join(left) == text.replace("anna@example.com", "[email 1]")
    assert max(map(len, left)) < 6_000


@given(st.lists(st.sampled_from([*JOINED, "x" * 900, "1" * 900, "-----BEGIN", ":" * 5_000]), max_size=20), CUTS)
def test_a_long_text_without_blanks_leaves_as_a_whole_one_does(pieces: list[str], cuts: list[int]):
    text = "".join(pieces)
    assert "".join(streamed(text, [size * 40 for size in cuts], None)) == whole(text, None)


def test_a_sentence_leaves_as_soon_as_the_next_begins():
    screen = Screen(ALL)
    assert [screen.feed(chunk).text for chunk in ("One", ".", " ", "T", "wo. T")] == ["", "", "", "One.", " Two."]


def test_a_private_key_is_held_to_its_end():
    screen = Screen(ALL)
    assert screen.feed(f"It is:\n{KEY[:70]}").text == "It is:\n"
    assert screen.feed(f"{KEY[70:]} Bye. ").text == ""
    assert screen.close().text == "[secret 1] Bye. "


@given(st.sampled_from([*filter(ends_with_finding, (*JOINED, *PRIVATE))]), CUTS)
@example("4111 1111 1111 1111", [14])
def test_a_finding_is_never_whole_where_something_stands_between_its_parts(private: str, cuts: list[int]):
    screen, shown = Screen(ALL), []
    for part in chunks(f"So: {private} is it. ", cuts):
        shown += [screen.feed(part).text, screen.close().text]
    assert private not in "".join(shown)


def test_what_left_before_something_else_is_not_looked_at_for_ever():
    screen = Screen(ALL)
    shown = [screen.feed("Pay 4111 1111 ").text, screen.close().text, screen.feed("1111 1111 now. And ").text]
    assert shown == ["", "Pay 4111 1111 ", "[card 1] now."]
    assert screen.feed("4111 1111 1111 1111. So").text == " And [card 2]."


def test_a_finding_that_has_left_masked_is_not_found_again():
    screen = Screen(ALL)
    shown = [screen.feed("Write to anna@example.com").text, screen.close().text, screen.feed(" today. ").text]
    assert "".join((*shown, screen.close().text)) == "Write to [email 1] today. "
