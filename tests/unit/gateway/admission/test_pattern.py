from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.admission.constraint import MOST_COUNTED, pattern_size


@pytest.mark.parametrize(
    ("pattern", "characters"),
    [
        ("", 0),
        ("abc", 3),
        ("a{9}", 9),
        ("a{2,9}b", 10),
        ("a{3,}", 3),
        ("a{,5}", 5),
        (r"\d{4}-\d{2}", 7),
        ("[a-z]{8}", 8),
        ("[]{9}]{2}", 2),
        (r"[\]a]{3}", 3),
        ("(a{9}b){9}", 90),
        ("((a{9}){9}){9}", 729),
        ("(ab)*{9}", 18),
        ("(){9}", 9),
        (r"\({9}", 9),
        ("a{9", 3),
        ("(a{9}", 9),
        ("a)b{2}", 3),
        ("a{9999999999}", MOST_COUNTED),
        ("a{999999999}" * 170, MOST_COUNTED),
        ("[" * 2_000, 1),
    ],
)
def test_repetitions_are_written_out(pattern: str, characters: int):
    assert pattern_size(pattern) == characters


@given(st.text(alphabet=r"ab(){}[]\,019*+?|^$.", max_size=200))
def test_any_text_has_a_size(pattern: str):
    assert 0 <= pattern_size(pattern) <= MOST_COUNTED
