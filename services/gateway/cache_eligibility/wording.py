"""Whether a text has certain words: phrases, and expressions for what phrases cannot describe.

A search takes time in proportion to the text: words and expressions repeat nothing without a count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType

from services.runtime.letters import MARKS
from services.runtime.question_key import composed

LONGEST = 200  # characters of a phrase
_ENDING = r"[\w\u0300-\u1cff]{0,20}"  # what `*` stands for; here marks are among the letters of their scripts
# Scripts without blanks between words: Thai, Lao, Tibetan, Burmese, Khmer, Japanese, Chinese.
_UNSPACED = "[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
_START = rf"(?:(?<![\w{MARKS}])|(?<={_UNSPACED})|(?={_UNSPACED}))"  # of a word
_END = rf"(?:(?![\w{MARKS}])|(?={_UNSPACED})|(?<={_UNSPACED}))"
_MARK = "*"
_BLANK = r"\s{1,4}"
_LISTED = re.compile(r"<(\w{1,20})>")


class Wording:
    """Phrases and expressions. A text that has one of `unless` has none of them. In an expression a blank stands for
    white space, and `<name>` for a phrase of the list of that name."""

    def __init__(
        self,
        phrases: Iterable[str],
        patterns: Iterable[str] = (),
        unless: Iterable[str] = (),
        lists: Mapping[str, Iterable[str]] = MappingProxyType({}),
    ):
        listed = {name: rf"(?<!\w){_one_of(given)}(?!\w)" for name, given in lists.items()}
        expressions = [_expression(pattern, listed) for pattern in patterns]
        self._wanted = re.compile("|".join([f"{_START}{_one_of(phrases)}{_END}", *expressions]))
        self._unless = re.compile("|".join(_expression(pattern, listed) for pattern in unless) or "(?!)")

    def find(self, text: str) -> str:
        """The first words of `text` that are meant, as `plain` has them; empty where there are none."""
        found = self._wanted.search(text)
        return found[0].strip() if found and not self._unless.search(text) else ""


@lru_cache(maxsize=1_000)
def wording(phrases: tuple[str, ...]) -> Wording:
    """The wording of a list of phrases, made once."""
    return Wording(phrases)


def plain(text: str) -> str:
    """A text as a `Wording` reads it: in NFC and lower case, with one kind of apostrophe."""
    return composed(text).lower().replace("\u2019", "'")


def check_phrase(phrase: str) -> None:
    """Raise ValueError for an invalid phrase. Valid: 1 to 200 characters, words with blanks between, `*` only at the
    end of a word."""
    words = phrase.split()
    if len(phrase) > LONGEST or not words:
        raise ValueError(f"a phrase of 1 to {LONGEST} characters, not blank, got {len(phrase)} characters")
    if any(_MARK in word[:-1] or word == _MARK for word in words):
        raise ValueError(f"`{_MARK}` at the end of a word alone, got {phrase!r}")


def _expression(pattern: str, listed: Mapping[str, str]) -> str:
    return _LISTED.sub(lambda name: listed[name[1]], pattern).replace(" ", _BLANK)


def _one_of(phrases: Iterable[str]) -> str:
    """The longest that fits."""
    spelled = sorted(map(_spelled, phrases), key=len, reverse=True)
    return f"(?:{'|'.join(spelled)})"


def _spelled(phrase: str) -> str:
    return _BLANK.join(map(_word, plain(phrase).split()))


def _word(word: str) -> str:
    return re.escape(word[:-1]) + _ENDING if word.endswith(_MARK) else re.escape(word)
