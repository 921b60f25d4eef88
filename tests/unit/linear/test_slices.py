"""No step of the guard reads more than a slice of a long text: between two steps the event loop runs.

The work is counted: the characters that each rule looks through in a step, and in all of them together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from services.gateway.guard import denied
from services.gateway.guard.checks import everything
from services.gateway.http.endpoints.moderations import _Moderation, _scan_text
from services.gateway.settings.guard import GuardSettings
from services.runtime.limits import CONTENT_BYTES
from services.runtime.security.incremental_search import reach
from services.runtime.security.private_data import Rule

PHRASES = tuple(f"project number {number}" for number in range(denied.MOST))
GUARD = GuardSettings(denied_phrases=PHRASES, denied_patterns=(r"\bx[a-z ]{1,100}y\b",), pattern_ms=1_000)
SLICE = (
    5_000  # characters of a step, beyond the reach of the rule: those that a guard holds before it looks, and new ones
)
LENGTH = CONTENT_BYTES // 4


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[Rule]:
    """The characters that each rule has looked through since it was cleared."""
    counted: Counter[Rule] = Counter()

    def counting(kind: type[Rule]) -> None:
        matches = kind.matches

        def counts(rule: Rule, text: str, start: int) -> Iterator[Any]:
            counted[rule] += len(text) - start
            return matches(rule, text, start)

        monkeypatch.setattr(kind, "matches", counts)

    counting(Rule)
    counting(denied._Expression)
    return counted


@pytest.mark.parametrize(
    "unit", ["a", "a.", "project-", "x", "@", "1", "a ", "One. "], ids=lambda unit: f"text of {unit!r}"
)
def test_each_step_of_a_moderation_reads_a_slice_of_the_text(unit: str, read: Counter[Rule]) -> None:
    text, total = unit * (LENGTH // len(unit)), Counter[Rule]()
    for _ in _scan_text(text, everything(GUARD), _Moderation()):
        for rule, characters in read.items():
            assert characters <= SLICE + 2 * reach(rule.pattern), rule.name
        total.update(read)
        read.clear()
    of_phrases = [characters for rule, characters in total.items() if rule.name == "denied_phrase"]
    assert len(of_phrases) == 1
    assert all(characters >= len(text) for characters in of_phrases), "each rule reads the whole text"
    for rule, characters in total.items():
        assert characters <= 4 * len(text) * (1 + reach(rule.pattern) / SLICE), (
            f"{rule.name} reads the text several times"
        )


@pytest.mark.parametrize(("before", "after"), [(4_000, 40_000), (16_000, 0), (39_990, 9)])
def test_a_phrase_and_a_pattern_are_found_wherever_a_slice_ends(before: int, after: int) -> None:
    text = f"{'a' * before}-Project  number 99-xay-{'a' * after}"
    verdict = _Moderation()
    for _ in _scan_text(text, everything(GUARD), verdict):
        pass
    assert verdict.rules["denied"] == {"denied_phrase": 1, "denied_pattern": 1}
