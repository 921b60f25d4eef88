"""What a tenant's answers may not say: phrases, and regular expressions of a bounded kind.

A text is looked through while it is written, so it must be known how far a match may reach: what repeats has a count,
and a match has `WIDEST` characters at most. An expression looks at nothing around its match but the borders of words.
Python's own matcher may take time beyond measure for some; `regex` ends at a time that it is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from services.runtime.errors import shorten
from services.runtime.security.incremental_search import IncrementalSearch
from services.runtime.security.private_data import Finding, Rule

WIDEST = 200  # characters of a match
MOST = 100  # phrases, and expressions
# No public function returns the width of a match.
_parser: Any = re._parser  # type: ignore[attr-defined]
_SIMPLE = {"LITERAL", "NOT_LITERAL", "ANY", "IN", "BRANCH", "SUBPATTERN", "MAX_REPEAT", "MIN_REPEAT", "AT"}
_WITHOUT_BLANKS = "\u2e80"  # from here on words stand without blanks between them
_BORDER = r"\b"  # of a word
_BORDERS = {"AT_BOUNDARY", "AT_NON_BOUNDARY"}


class TooSlow(Exception):
    """An expression that took longer than it may."""


def check_phrases(phrases: Sequence[str]) -> None:
    """Raise ValueError for the first that is none."""
    for phrase in phrases:
        if not 1 <= len(phrase) <= WIDEST or not phrase.strip():
            raise ValueError(f"a phrase of 1 to {WIDEST} characters, not blank, got {shorten(repr(phrase))}")


def check_pattern(pattern: str) -> None:
    """Raise ValueError for an expression that is none, or none of the kind that is served."""
    if not 1 <= len(pattern) <= 4 * WIDEST:
        raise ValueError(f"a pattern of 1 to {4 * WIDEST} characters, got {len(pattern)}")
    try:
        parsed = _parser.parse(pattern, re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"a regular expression ({error}), got {shorten(repr(pattern))}") from None
    least, widest = parsed.getwidth()
    if least == 0 or widest > WIDEST:
        raise ValueError(
            f"a match of 1 to {WIDEST} characters, got {least} to {min(int(widest), 10**9)}: {shorten(pattern)}"
        )
    for name in _kinds(parsed):
        if name not in _SIMPLE | _BORDERS:
            kinds = "characters, classes, groups, alternatives, counted repetitions and \\b"
            raise ValueError(f"{kinds}, got {name.lower()}: {shorten(pattern)}")


def _kinds(parsed: Any) -> Iterable[str]:
    for kind, value in parsed:
        if kind.name == "AT":
            yield value.name
            continue
        yield kind.name
        for inner in value if isinstance(value, tuple | list) else ():
            for each in inner if isinstance(inner, list) else (inner,):
                if isinstance(each, _parser.SubPattern):
                    yield from _kinds(each)


class Denied:
    """Phrases and expressions, however they are capitalized; an expression may take `most_ms` at a time."""

    def __init__(self, phrases: Sequence[str], patterns: Sequence[str], most_ms: float):
        self._rules = (*_phrase_rules(tuple(phrases)), *_pattern_rules(tuple(patterns), most_ms / 1000))
        self.reach = 1 + max(
            map(_width, (*map(_spelled, phrases), *patterns))
        )  # and one sign more, for a word's border

    def find(self, text: str, start: int) -> list[Finding]:
        """Matches that begin at `start` or later. Raises `TooSlow`."""
        return [finding for rule in self._rules for finding in rule.find(text, start)]

    def search(self, start: int) -> IncrementalSearch:
        """Finds the same in a text that grows. Raises `TooSlow`."""
        return IncrementalSearch(self._rules, start, self.reach)


@dataclass(frozen=True, slots=True)
class _Expression(Rule):
    """A rule whose pattern, one of the module `regex`, may take `most_s` at a time."""

    most_s: float = 0.0

    def matches(self, text: str, start: int) -> Iterator[tuple[re.Match[str], Finding | None]]:
        pattern: Any = self.pattern
        try:
            # Beside other threads it would wait for the interpreter again and again, and that counts as its time.
            matches = list(pattern.finditer(text, start, timeout=self.most_s, concurrent=False))
        except TimeoutError:
            raise TooSlow(f"a denied pattern took longer than {self.most_s * 1000:g} ms") from None
        for match in matches:
            begin, end = match.span()
            yield match, Finding(self.name, self.kind, self.label, begin, end, begin)


@lru_cache(maxsize=256)
def _phrase_rules(phrases: tuple[str, ...]) -> tuple[Rule, ...]:
    """A rule for all phrases: whole words; any white space between two words, at most four characters."""
    if not phrases:
        return ()
    spelled = sorted(map(_spelled, phrases), key=len, reverse=True)
    within = [each.removeprefix(_BORDER) for each in spelled if each.startswith(_BORDER)]
    # The border comes once, before all of them: within a word no phrase is tried.
    at_borders = [f"{_BORDER}(?:{'|'.join(within)})"] if within else []
    anywhere = [each for each in spelled if not each.startswith(_BORDER)]
    pattern = re.compile("|".join((*at_borders, *anywhere)), re.IGNORECASE)
    return (Rule("denied_phrase", "denied", "withheld", pattern),)


def _spelled(phrase: str) -> str:
    words = phrase.split()
    first, last = (
        _BORDER if sign.isalnum() and sign < _WITHOUT_BLANKS else "" for sign in (words[0][0], words[-1][-1])
    )
    return first + r"\s{1,4}".join(map(re.escape, words)) + last


def _width(pattern: str) -> int:
    return int(_parser.parse(pattern, re.IGNORECASE).getwidth()[1])


@lru_cache(maxsize=256)
def _pattern_rules(patterns: tuple[str, ...], most_s: float) -> tuple[Rule, ...]:
    if not patterns:
        return ()
    import regex  # only for tenants with a pattern

    compiled: list[Any] = [regex.compile(pattern, regex.IGNORECASE) for pattern in patterns]
    return tuple(_Expression("denied_pattern", "denied", "withheld", each, most_s=most_s) for each in compiled)
