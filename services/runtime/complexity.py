"""How hard a question looks: a small classifier, trained on questions of ten languages (`training/`).

`hedgerow bench guard` measures it on questions that it was not trained on.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from pathlib import Path

from services.runtime import linear_model
from services.runtime.linear_model import LinearModel

_READ = 1_000  # characters, of which the first words say most
_ASKED = "\nQuestion: "  # behind lines of context, as models here have learned to read them
_MANY_WORDS = 60  # a question this long holds more than one demand


class Complexity(IntEnum):
    """How hard a question looks. Numbers as in the contracts."""

    UNSPECIFIED = 0
    SIMPLE = 1
    COMPLEX = 2


def classify(question: str) -> Complexity:
    """Classify a question by certain signs, then by its words, in 0.01 to 0.05 ms."""
    question = question.rpartition(_ASKED)[2]
    long = len(question.split(maxsplit=_MANY_WORDS)) > _MANY_WORDS
    several = long or sum(map(question.count, "?？؟")) > 1 or "```" in question
    return Complexity.COMPLEX if several or probability(question) > 0.5 else Complexity.SIMPLE


def probability(question: str) -> float:
    """The probability that a question is complex, 0 to 1."""
    return model().probability(features(question))


def features(question: str) -> set[int]:
    """The features of a question."""
    question = question[:_READ]
    words = question.split()
    begins = " ".join(words[:2]).casefold()
    return linear_model.features(question, (f"#words {len(words).bit_length()}", f"#begins {begins}"))


@cache
def model() -> LinearModel:
    return linear_model.load(Path(__file__).with_name("complexity.weights"))
