"""Labelled pairs of questions: one JSON object a line, `{"a": …, "b": …, "duplicate": 0 or 1}`, gzipped or not."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, NamedTuple

from services.cache.answers import Answers
from services.cache.keyed_question import KeyedQuestion
from services.cache.semantic_match.traffic import EVERYONE
from services.runtime.deadline import Deadline

_LONGEST_LINE = 1_000_000  # characters


class BadPairs(ValueError):
    """A file that holds no labelled pairs; names the line and the field."""


class Pair(NamedTuple):
    """Two questions, and whether one answer is right for both."""

    a: str
    b: str
    duplicate: bool


def read(file: Path) -> list[Pair]:
    """All pairs of a file. Raises `BadPairs`, also where there are none."""
    try:
        with _opened(file) as lines:
            pairs = [_pair(line, number) for number, line in enumerate(_bounded(lines), 1) if line.strip()]
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadPairs(f"{file} cannot be read: {error}") from None
    if not pairs:
        raise BadPairs(f"{file} has no pairs")
    return pairs


def components(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """The pairs by one question of those that hang together."""
    linked = Linked()
    for pair in pairs:
        linked.link(pair.a, pair.b)
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(linked.root(pair.a), []).append(pair)
    return groups


class Linked:
    """Questions that hang together (disjoint sets: Tarjan, J. ACM 22, 1975)."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def link(self, a: str, b: str) -> None:
        """Have two hang together, and all that hang together with either."""
        self._above[self.root(a)] = self.root(b)

    def root(self, text: str) -> str:
        """One question of all that hang together with this one."""
        while (higher := self._above.get(text, text)) != text:
            self._above[text] = text = self._above.get(higher, higher)
        return text


def _opened(file: Path) -> IO[str]:
    return gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8")


def _bounded(lines: IO[str]) -> Iterator[str]:
    while line := lines.readline(_LONGEST_LINE):
        yield line


def _pair(line: str, number: int) -> Pair:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise BadPairs(f"line {number}: a JSON object on one line, got {line[:40]!r}") from None
    if not isinstance(row, dict):
        raise BadPairs(f"line {number}: a JSON object, got {line[:40]!r}")
    for name in ("a", "b"):
        if not isinstance(row.get(name), str) or not row[name].strip():
            raise BadPairs(f"line {number}: {name}: text other than white space, got {row.get(name)!r:.40}")
    if row.get("duplicate") not in (0, 1):  # true and false are 1 and 0
        raise BadPairs(f"line {number}: duplicate: 0 or 1, got {row.get('duplicate')!r:.40}")
    return Pair(row["a"], row["b"], bool(row["duplicate"]))


class Judged(Enum):
    """Whether the answer to one question serves another."""

    RIGHT = "right"
    WRONG = "wrong"
    UNLABELLED = "unlabelled"


class Labels:
    """A question is a text as the cache compares it. Duplicates of duplicates are duplicates."""

    def __init__(self, pairs: Sequence[Pair]):
        self._duplicates = Linked()
        self._labelled = {(pair.a, pair.b): pair.duplicate for pair in pairs}
        for pair in pairs:
            if pair.duplicate:
                self._duplicates.link(pair.a, pair.b)

    def judge(self, stored: str, asked: str) -> Judged:
        """Whether the answer to `stored` is right for `asked`: by the pair's own label, else by their text, else by
        their labelled duplicates."""
        label = self._labelled.get((stored, asked), self._labelled.get((asked, stored)))
        if label is not None:
            return Judged.RIGHT if label else Judged.WRONG
        same = self._duplicates.root(stored) == self._duplicates.root(asked)
        return Judged.RIGHT if same else Judged.UNLABELLED


@dataclass(frozen=True, slots=True)
class Traffic:
    """Pairs whose `b` is looked up, until there are so many verdicts."""

    pairs: Sequence[Pair] = ()
    verdicts: int = 0

    async def judge(self, answers: Answers, asked: Sequence[KeyedQuestion], labels: Labels) -> dict[str, object]:
        """Look the questions up and report of each sample what its labels say. One that they say nothing of is not
        reported. Returns how many verdicts and lookups there were, and what is in force then, for people."""
        judged = lookups = 0
        for question in asked:
            if judged == self.verdicts:
                break
            lookups += 1
            sample = (await answers.lookup(question, None, Deadline.never())).sample
            label = labels.judge(sample.asked, question.asked) if sample else Judged.UNLABELLED
            if sample and label is not Judged.UNLABELLED:
                right = label is Judged.RIGHT
                await answers.verified(question.traffic, sample.key, sample.score, sample.accepted, right)
                judged += 1
        traffic = asked[0].traffic if asked else EVERYONE
        threshold = answers.verification.thresholds.of(traffic)
        return {"verdicts": judged, "traffic": lookups, "threshold": threshold}


def divided(given: Sequence[Pair], seed: int) -> tuple[list[Pair], list[Pair]]:
    """(traffic, measured), about half each, in an order that is drawn. Pairs that hang together by a question stay
    together: else what is measured would have been judged."""
    groups = list(components(given).values())
    order = random.Random(seed)  # a split is no secret
    order.shuffle(groups)
    parts: tuple[list[Pair], list[Pair]] = ([], [])
    for group in groups:
        parts[len(parts[0]) > len(parts[1])].extend(group)
    for part in parts:
        order.shuffle(part)
    return parts
