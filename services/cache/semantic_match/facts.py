"""The facts of a question: what an embedding blurs, and an answer hangs on.

all-MiniLM-L6-v2 puts `turn dark mode on` at 0.94 of `turn dark mode off`, and `are cats afraid of tigers` at 0.99 of
`are tigers afraid of cats`. Words are read with rules for English; of other scripts every word counts as a fact.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from cachetools import LRUCache

from services.runtime.letters import MARKS

_WORD = re.compile(rf"[^\W\d_]+(?:(?:'|[{MARKS}]+)[^\W\d_]+)*[{MARKS}]*|\d+(?:[.,:]\d+)*")
_SENTENCE_END = re.compile(r"(?<=[.?!:])\s+|\n+")
_OR_NOT = re.compile(r"\bor (?:why )?not\b")  # asks no more than the question without it
_MINUS = re.compile(r"(?<![^\W\d_])-\s*(?=\d)")
_OPERATOR = re.compile(r"//|&&|\[:|:\]|(?<=\d)\s?/\s?(?=\d)|(?<=\d)!")  # of marks that prose has, too
_PRIMES = re.compile(r"""(?<=\d)['"](?!\w)|(?<=\w)'+(?=\()""")  # feet and inches; derivatives
_HALF_OF_DAY = re.compile(r"\b([ap])\.m\b\.?", re.IGNORECASE)
_ONE_QUOTE = str.maketrans("’′”″", "''\"\"")
# A digit beside a letter, an underscore, a capital within, or one letter after a hyphen; no `21st`.
_CODE = re.compile(r"\d[^\W\d_]|[^\W\d_]\d|_|[a-z][A-Z]|-[A-Za-z]\b")
_MARKS = "\"'`.,:;?!()[]{}<>"
_POSSESSIVE = re.compile(r"'s?$")
_ENDINGS = ("ing", "ies", "ied", "es", "ed", "s", "er", "ly")
_LAST_LATIN = "\u024f"
_SHORT = 3


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SMALL = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_NUMBERS = {word: str(value) for value, word in enumerate(f"{_SMALL} seventeen eighteen nineteen twenty".split())}
_NUMBERS |= {"thirty": "30", "forty": "40", "fifty": "50", "sixty": "60", "seventy": "70", "eighty": "80"}
_NUMBERS |= {"ninety": "90", "hundred": "100", "thousand": "1000", "million": "1000000", "billion": "1000000000"}
_NUMBERS |= {"first": "1st", "third": "3rd", "fourth": "4th", "fifth": "5th", "sixth": "6th", "seventh": "7th"}
_NUMBERS |= {"eighth": "8th", "ninth": "9th", "tenth": "10th", "eleventh": "11th", "twelfth": "12th"}
del _NUMBERS["one"]  # mostly a pronoun; against `two` the other number alone is a difference

_NEGATIONS = _set("not no never without cannot none nobody nothing neither nor except unless")
_ASKED_FOR = _set("who when where why how")
_MEASURES = _set("many much long often old far big tall high deep fast")
_LINKS = _set("of in for from")


def _rivals() -> dict[str, list[tuple[int, str]]]:
    """The sets of each word in `rivals.txt`, with the word that stands for its meaning."""
    lines = (Path(__file__).parent / "rivals.txt").read_text("utf-8").splitlines()
    rivals: dict[str, list[tuple[int, str]]] = {}
    for number, line in enumerate(lines):
        for meaning in () if line.startswith("#") else line.split():
            for word in meaning.split("/"):
                rivals.setdefault(word, []).append((number, meaning))
    return rivals


_RIVALS = _rivals()
# Words that a question can lose or gain and still ask the same.
_FUNCTION_WORDS = _set(
    """a about actually also am an and any are as at be been being best but by can could describe did do does doing
    done down explain for from get getting give good got had has have having he her him his how i if in into is it its
    know let like ll m many may me mean means might much must my of off on one ones or our out over please re really
    s say shall she should show so some t tell than that the their them then there these they this those to up us ve
    was way ways we were what when where which who whom whose why will with would you your yours"""
)


_MEMORY = 500_000  # characters of the texts whose facts are remembered; each takes up to 100 bytes


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that must agree for two questions to have one answer. Words are in lower case."""

    length: int  # of the text, in characters
    words: frozenset[str]
    numbers: tuple[str, ...]  # digits and number words, in order
    names: frozenset[str]  # capitalized within a sentence
    negations: int
    asked_for: str  # `why`, `when`, `how many`, …; empty for what, which and requests
    content: tuple[str, ...]  # stems of all other words but function words, in order
    links: int  # `of` and the like: `the capital of Spain` and `Spain's capital` order the same words differently
    symbols: tuple[str, ...]  # signs, operators, emoji: the model knows few of them
    foreign: tuple[str, ...]  # words outside the Latin script: many are one unknown token to the model
    layout: tuple[int, ...]  # indentation of each line of a text of several
    rivals: tuple[tuple[int, str], ...]  # words that exclude others: (which set of `rivals.txt`, the word for it)
    codes: frozenset[str]  # versions, part numbers, identifiers; as they are spelled
    tokens: frozenset[str]  # what stands between white space, without the marks around it, in lower case
    short: frozenset[str]  # those of up to 3 characters with a capital: units, chemical symbols, abbreviations


_memory: LRUCache[tuple[str, str], Facts] = LRUCache(_MEMORY, getsizeof=lambda facts: facts.length + 50)


def read(text: str, tenant: str) -> Facts:
    """The facts of a tenant's question. Each tenant's are remembered apart, so that none is faster for another."""
    facts = _memory.get((tenant, text))
    if facts is None:
        facts = _memory[tenant, text] = _read(text)
    return facts


def _read(text: str) -> Facts:
    length = len(text)
    text = _HALF_OF_DAY.sub(r"\1m", text.translate(_ONE_QUOTE))
    tokens = [token.strip(_MARKS) for token in text.split()]
    words = _WORD.findall(text)
    lower = [_POSSESSIVE.sub("", word.lower()) for word in words]
    lines = text.split("\n")
    return Facts(
        length=length,
        rivals=tuple(rival for word in lower for rival in _RIVALS.get(word, ())),
        codes=frozenset(filter(_CODE.search, tokens)),
        tokens=frozenset(token.lower() for token in tokens),
        short=frozenset(token for token in tokens if len(token) <= _SHORT and not token.islower()),
        words=frozenset(lower),
        numbers=tuple(number for word in lower if (number := _number(word))),
        names=frozenset(_names(text)),
        negations=sum(map(_negates, _WORD.findall(_OR_NOT.sub("", text.lower())))),
        asked_for=_asked_for(lower),
        content=tuple(stem(word) for word in lower if _is_content(word)),
        links=sum(word in _LINKS for word in lower),
        symbols=tuple(sorted(filter(_is_symbol, text)))
        + tuple("-" for _ in _MINUS.findall(text))
        + tuple("".join(found.split()) for found in _OPERATOR.findall(text))
        + tuple(_PRIMES.findall(text)),
        foreign=tuple(word for word in lower if max(word) > _LAST_LATIN),
        layout=tuple(len(line) - len(line.lstrip()) for line in lines) if len(lines) > 1 else (),
    )


def _number(word: str) -> str:
    return word.replace(",", "") if word[0].isdigit() else _NUMBERS.get(word, "")


def _names(text: str) -> list[str]:
    within = [word for sentence in _SENTENCE_END.split(text) for word in _WORD.findall(sentence)[1:]]
    names = [_POSSESSIVE.sub("", word).lower() for word in within if word[0].isupper()]
    return [name for name in names if name.split("'")[0] not in _FUNCTION_WORDS]


def _negates(word: str) -> bool:
    return word in _NEGATIONS or word.endswith("n't")


def _asked_for(words: list[str]) -> str:
    for word, following in zip(words, [*words, ""][1:], strict=True):
        if word in ("what", "which"):
            return ""
        if word in _ASKED_FOR:
            return f"how {following}" if word == "how" and following in _MEASURES else word
    return ""


def _is_content(word: str) -> bool:
    return not (word.split("'")[0] in _FUNCTION_WORDS or _negates(word) or _number(word))


def stem(word: str) -> str:
    """The stem of an English word, roughly."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    return word.rstrip("e") if len(word) > 3 else word


def _is_symbol(character: str) -> bool:
    return character in "%#*^" or unicodedata.category(character) in ("Sm", "Sc", "So", "No")
