"""A logistic regression over hashed words and n-grams: a classifier of 32 KiB that reads a question in 0.1 ms.

In plain Python, because the gateway and the router have no numpy. `training/train_text.py` makes the weights by
the very features that are here. Each feature counts once, however often it stands in a text, and the sum is divided by
the root of how many there are, so that a long text is not surer than a short one (hashing trick: Weinberger et al.,
2009, https://arxiv.org/abs/0902.2206).
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from array import array
from collections.abc import Iterable, Set
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from zlib import crc32

from services.runtime.letters import INVISIBLE, TAGS

BUCKETS = 1 << 15
_GRAM = 5  # bytes: five letters, or nearly two signs of Chinese
_WORD = re.compile(r"\w+|[^\w\s]")
_UNSEEN: dict[int, str | None] = dict.fromkeys(code for first, last in INVISIBLE for code in range(first, last + 1))
_UNSEEN |= {TAGS + code: chr(code) for code in range(ord(" "), ord("~") + 1)}


class BadWeights(ValueError):
    """The file has no valid weights."""


@dataclass(frozen=True, slots=True)
class LinearModel:
    """`weights` by bucket, in steps of `step`."""

    weights: array[int]
    step: float
    bias: float

    def probability(self, features: Set[int]) -> float:
        """The probability of the trained class, 0 to 1."""
        total = sum(map(self.weights.__getitem__, features)) * self.step / math.sqrt(len(features) or 1)
        return 1 / (1 + math.exp(-max(-50.0, min(50.0, total + self.bias))))


def load(file: Path) -> LinearModel:
    """The model in a file: a line of JSON, then a signed byte for each bucket. Raises `BadWeights`."""
    head, _, raw = file.read_bytes().partition(b"\n")
    weights = array("b")
    weights.frombytes(raw)
    if len(weights) != BUCKETS:
        raise BadWeights(f"{file}: {BUCKETS} weights, got {len(weights)}")
    header = json.loads(head)
    return LinearModel(weights, header["step"], header["bias"])


def plain(text: str) -> str:
    """`text` without case, compatible forms and invisible characters, which can hide words. Tags become ASCII."""
    return unicodedata.normalize("NFKC", text).translate(_UNSEEN).casefold()


def features(text: str, more: Iterable[str] = ()) -> set[int]:
    """The buckets of a text's words, pairs of words and n-grams of bytes; of `more` each separately."""
    words = _WORD.findall(plain(text))
    pairs = map(" ".join, pairwise(words))
    spelled = " ".join(words).encode(errors="replace")
    found = {crc32(token.encode(errors="replace")) % BUCKETS for token in (*words, *pairs, *more)}
    found.update([crc32(spelled[at : at + _GRAM]) % BUCKETS for at in range(max(0, len(spelled) - _GRAM + 1))])
    return found
