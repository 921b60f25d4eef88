"""No text makes a function that reads it take more than time in proportion to its length.

What is compared is the time that the thread itself had on a core, of a text and of one 16 times as long: a function
whose steps grow with the square needs 256 times as much, one whose steps grow with the length 16 times. A machine that
is busy with other work changes neither by a factor of four in each of five tries.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest

from tests.unit.linear.readers import READERS, STREAMED, Reader

_SHORT, _TIMES, _MOST = 4_096, 16, 64
_NOTHING_S = 0.02  # so fast that nothing can be said of it, and nobody has to wait for it
_UNITS = {
    "marks out of order": "\u0301\u0327",
    "one kind of marks, then another": "",
    "newlines": "\n",
    "blank lines": " \n",
    "tabs": "\t",
    "blanks": " ",
    "points": ".",
    "points and blanks": ". ",
    "one letter and a point": "a. ",
    "numbers": "1. ",
    "digits": "1",
    "letters": "a",
    "capitals": "A.",
    "words": "word ",
    "quotation marks": '"',
    "backslashes": "\\",
    "escaped quotation marks": '\\"',
    "backticks": "`",
    "round brackets": "(",
    "square brackets": "[",
    "braces": "{",
    "brackets of both kinds": '{"a":[',
    "tags": "<",
    "open tags": "<a ",
    "tool calls": "<tool_call>",
    "at signs": "@",
    "addresses": "a@b.",
    "hyphens": "-",
    "underscores": "_",
    "colons": "a:",
    "commas": ",",
    "lone surrogates": "\ud800",
    "wide marks": "\u3002",
    "nothing that is seen": "\u200b",
    "ligatures": "\ufdfa",
}


def _text(name: str, length: int) -> str:
    if not _UNITS[name]:
        return "a" + "\u0301" * (length // 2) + "\u0327" * (length // 2)
    return (_UNITS[name] * length)[:length]


def _cases() -> Iterator[tuple[str, int]]:
    for name in READERS:
        for size in (0, *((1, 4, 64) if name in STREAMED else ())):
            yield name, size


@pytest.mark.parametrize("text", _UNITS)
@pytest.mark.parametrize(("reader", "size"), list(_cases()))
def test_the_time_for_a_text_grows_with_its_length(reader: str, size: int, text: str) -> None:
    read, long = READERS[reader], _pieces(_text(text, _SHORT * _TIMES), size)
    if _seconds(read, long) < _NOTHING_S:
        return
    short = _pieces(_text(text, _SHORT), size)
    ratio = float("inf")
    for _ in range(5):
        ratio = min(ratio, _seconds(read, long) / _seconds(read, short))
        if ratio < _MOST:
            return
    pytest.fail(f"{_TIMES} times the text takes {ratio:.0f} times as long")


def _pieces(text: str, size: int) -> Sequence[str]:
    return [text[start : start + size] for start in range(0, len(text), size)] if size else [text]


def _seconds(read: Reader, pieces: Sequence[str]) -> float:
    begun = time.thread_time()
    with suppress(ValueError):  # a text that is refused is read until then
        read(pieces)
    return time.thread_time() - begun
