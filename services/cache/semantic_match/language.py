"""The language of a question: an embedder compares questions in the languages of its training, and in no other.

all-MiniLM-L6-v2 was trained on English. In German it puts `Wie hoch ist mein Kontostand?` near other questions about
accounts, and the rules of `rules.py` know no German word in which they differ.

py3langid scores 142 languages by naive Bayes over byte n-grams, in 70 µs for a question; equal texts have equal scores.
A question counts as English from a probability of 0.1 on, and from nothing less, because an undecided one is missed at
most. Of 866 right hits among 12,000 pairs from Quora that loses 0.7%. Of beginnings of sentences in 12 languages, 5 to
8 words long, 0.3% pass for English; of those with 3 to 4 words, 0.7%.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from services.cache.first_use import FirstUse

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

_LEAST = 0.1
_UNDECIDED = "und"  # ISO 639-2: the language is not determined
_READ = 2_000  # characters


def reader(known: Collection[str]) -> Callable[[str], str]:
    """A function from a text to the code of its language (ISO 639-1, `und` where it is undecided), or to an empty text
    where the language is one of the `known`. Without any, nothing is read: the embedder knows nearly all."""
    if not known:
        return lambda _: ""
    return lambda text: _unknown(load(), known, text[:_READ])


def _unknown(identifier: LanguageIdentifier, known: Collection[str], text: str) -> str:
    if not any(map(str.isalpha, text)):
        return ""  # numbers and signs, for which there are rules
    ranked = dict(identifier.rank(text))
    if sum(ranked.get(language, 0.0) for language in known) >= _LEAST:
        return ""
    first, probability = next(iter(ranked.items()))
    return first if first not in known and probability > _LEAST else _UNDECIDED


def _load() -> LanguageIdentifier:
    """Takes 75 MB and half a second, and a file in the folder for temporary ones."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


load = FirstUse("the languages of questions", _load)
