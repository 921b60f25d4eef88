"""Rules look through each part of a growing text once, and find what they find in the whole one."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from services.runtime.security.credentials import PRIVATE_KEY, SECRETS
from services.runtime.security.incremental_search import IncrementalSearch, reach
from services.runtime.security.personal_data import PERSONAL
from services.runtime.security.private_data import Rule, find, merged

_ALL = (*SECRETS, *PERSONAL)
_PIECES = st.sampled_from(
    [
        *("anna@example.com", " 4111111111111111 ", "+4930123456,", " DE89370400440532013000 ", "password: hunter2!x "),
        *(
            "AKIAIOSFODNN7EXAMPLE ",
            "sk-abcdefghijklmnopqrstuv ",
            "call me at 5551234567 ",
            "-----BEGIN PRIVATE KEY-----",
        ),
        *("-----END PRIVATE KEY-----", "x" * 700, "1" * 300, " " * 300, "://a:b@c", "ab" * 9_000, "\u0130"),
    ]
)


@given(st.lists(_PIECES, max_size=30), st.integers(0, 50))
def test_a_growing_text_has_the_findings_of_the_whole(pieces: list[str], start: int):
    growing, text = IncrementalSearch(_ALL, start), "." * start
    for piece in pieces:
        text += piece
        growing.look(text)
    assert merged(growing.find(text)) == find(text, _ALL, start)


def test_scanned_text_is_not_scanned_again():
    looked: list[int] = []

    def accept(match: re.Match[str]) -> bool:
        looked.append(match.start())
        return True

    rule = Rule("digit", "personal", "digit", re.compile("[0-9]"), (), accept)
    growing = IncrementalSearch((rule,), 0)
    for length in range(1_000, 20_001, 1_000):
        growing.look("1" * length)
    assert len(growing.find("1" * 20_000)) == 20_000
    assert max(map(looked.count, (0, 10_000, 19_000))) == 1
    assert len(looked) < 21_000


def test_every_rule_has_a_bounded_reach():
    assert {rule.name for rule in _ALL if reach(rule.pattern) > 8_000} == {PRIVATE_KEY.name}
