"""Labelled pairs of questions: one JSON object a line, `{"a": …, "b": …, "duplicate": 0 or 1}`, gzipped or not."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

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


def components(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """The pairs in groups that hang together by their questions (disjoint sets: Tarjan, J. ACM 22, 1975)."""
    above: dict[str, str] = {}

    def root(text: str) -> str:
        while (higher := above.get(text, text)) != text:
            above[text] = text = above.get(higher, higher)
        return text

    for pair in pairs:
        above[root(pair.a)] = root(pair.b)
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(root(pair.a), []).append(pair)
    return list(groups.values())


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


def divided(given: Sequence[Pair], seed: int) -> tuple[list[Pair], list[Pair]]:
    """(traffic, measured), about half each, in an order that is drawn. Pairs that hang together by a question stay
    together: else what is measured would have been judged."""
    groups = components(given)
    order = random.Random(seed)  # a split is no secret
    order.shuffle(groups)
    parts: tuple[list[Pair], list[Pair]] = ([], [])
    for group in groups:
        parts[len(parts[0]) > len(parts[1])].extend(group)
    for part in parts:
        order.shuffle(part)
    return parts
