"""Prompt injection: text that gives a model instructions without the right to do so.

Patterns come first, for phrases that do not occur by accident; then a small classifier, for other wordings. A text is
read in pieces of some sentences, because an injection is short and the text around it may be long. `hedgerow bench
guard` measures both on texts that they were not trained on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

from services.runtime import linear_model
from services.runtime.linear_model import LinearModel

PIECE = 400  # characters
_OVERLAP = 80  # of a piece with the one before, where no sentence ends
# Begins with one of a few signs: what has none is searched ten times as fast as by alternatives.
_SENTENCE_END = re.compile(r"[.!?\n。！？](?:(?<=[.!?])\s+|(?<=[\n。！？])\n*)")
# Templates' own marks, which a model may take for an end of what a user says.
_MARKS = re.compile(
    r"<\|?(?:im_start|im_end|start_header_id|eot_id|endoftext|system)\|?>|<</?SYS>>|\[/?INST\]", re.IGNORECASE
)
_OVERRIDE = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass)\s(?:\w+\s){0,3}?(?:previous|prior|earlier|above|preceding|initial|system)\s"
    r"(?:\w+\s)?(?:instructions?|rules|directions|prompts?|guidelines|directives)\b",
    re.IGNORECASE,
)
_LEAK = re.compile(
    r"\b(?:print|reveal|show|repeat|output|dump|leak|disclose|quote)\s(?:\w+\s){0,2}?your\s(?:\w+\s){0,2}?"
    r"(?:system|hidden|initial|secret)\s(?:prompt|instructions?|message)\b",
    re.IGNORECASE,
)
PATTERNS = {"template_marks": _MARKS, "override": _OVERRIDE, "prompt_leak": _LEAK}
CLASSIFIER = "classifier"


def pieces(text: str) -> Iterator[str]:
    """The pieces of `text`, of whole sentences if these are short enough. Each is computed when it is needed."""
    begin = at = 0
    ends = (found.end() for found in _SENTENCE_END.finditer(text))
    for end in chain(ends, (len(text),)):
        if end - begin > PIECE and at > begin:
            yield text[begin:at]
            begin = at
        while end - begin > PIECE:
            yield text[begin : begin + PIECE]
            begin += PIECE - _OVERLAP
        at = end
    if begin < len(text):
        yield text[begin:]


def by_pattern(piece: str) -> str:
    """The pattern that a piece has; empty where it has none."""
    read = linear_model.plain(piece)
    return next((name for name, pattern in PATTERNS.items() if pattern.search(read)), "")


def probability(piece: str) -> float:
    """The classifier's probability that a piece is an injection, 0 to 1."""
    return model().probability(linear_model.features(piece))


@cache
def model() -> LinearModel:
    return linear_model.load(Path(__file__).with_name("injection.weights"))
