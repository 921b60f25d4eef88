"""Labelled pairs of questions from a file: gzip, a JSON object a line, with `a`, `b` and `duplicate`."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path


class BadPairs(Exception):
    """A file that is no list of pairs; the text says where and why."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two questions, and whether one answer serves both."""

    a: str
    b: str
    duplicate: bool


def read(path: Path) -> list[Pair]:
    """The pairs of a file. Raises `BadPairs`."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            pairs = [_pair(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadPairs(f"{path}: {error}") from error
    if len(pairs) < 2:
        raise BadPairs(f"{path}: at least two pairs, got {len(pairs)}")
    return pairs


def _pair(line: str, where: str) -> Pair:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise BadPairs(f"{where}: no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadPairs(f"{where}: an object with a, b and duplicate, got {type(fields).__name__}")
    for name in ("a", "b"):
        text = fields.get(name)
        if not isinstance(text, str) or not text.strip():
            raise BadPairs(f"{where}, {name}: a question, got {json.dumps(text)}")
    if fields.get("duplicate") not in (True, False):  # 1 and 0 are equal to them
        raise BadPairs(f"{where}, duplicate: true, false, 1 or 0, got {json.dumps(fields.get('duplicate'))}")
    return Pair(fields["a"], fields["b"], bool(fields["duplicate"]))
