"""What kind of question it is, by its words: bound to the time, about the person who asks, or neither.

The words are in `kinds.toml`. Of a long text its beginning and its end are read: what somebody wants of a document
stands before or behind it, and a date within it is not what is asked.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from services.gateway.cache_eligibility.wording import Wording, plain

KINDS = "time_bound", "personal"
_END = 1_024  # characters of a text's beginning, and of its end
_MOST = 8_192  # characters of a conversation


@cache
def wordings() -> Mapping[str, Wording]:
    """What each kind is known by."""
    read = tomllib.loads(Path(__file__).with_name("kinds.toml").read_text())
    return {kind: Wording(**read[kind], lists=read["lists"]) for kind in KINDS}


def kinds(texts: Iterable[str]) -> Mapping[str, str]:
    """The kinds of a question, each with the words that make it one. `texts`: from `looked_at`."""
    found: dict[str, str] = {}
    for text in texts:
        for kind, wording in wordings().items():
            if kind not in found and (words := wording.find(text)):
                found[kind] = words
    return found


def looked_at(texts: Iterable[str]) -> list[str]:
    """What is read of the texts that somebody said, the latest first: 8,192 characters at most."""
    read, left = list[str](), _MOST
    for text in texts:
        if left <= 0:
            break
        read.append(plain(text if len(text) <= 2 * _END else f"{text[:_END]}\n{text[-_END:]}"))
        left -= len(read[-1])
    return read
