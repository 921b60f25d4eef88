"""No text makes a function that reads it take more than time in proportion to its length.

The test compares the thread's CPU time for a text and for one 16 times as long: a function
whose steps grow with the square needs 256 times as much, one whose steps grow with the length 16 times. A machine that
is busy with other work changes neither by a factor of two in each of five tries. At these lengths a function
whose steps grow with the square is noticed with a margin; they are more than what a guard holds of a text.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import pytest

from services.runtime.errors import InvalidInput
from tests.unit.linear.reader import Reader
from tests.unit.linear.readers import GATHERED, PLAIN, READERS, STREAMED, WHOLE

_TIMES, _MOST = 16, 40
_LENGTHS: Mapping[int, int] = {0: 8_192, 1: 3_072, 4: 6_144, 64: 8_192}  # by the size of pieces; 0: in one piece
# Of what only keeps its pieces, where a fault copies all of them with each that comes: bytes are copied fast.
_MANY, _LONG, _LONG_PIECE = 2_048, 2_097_152, 2_048
_NOTHING_S = 0.005  # too fast to be measured, and to matter
_SENTENCES = "A hedge has two rows of plants. Is it high? It may be."
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
    "carriage returns": "\r",
    "equals signs": "=",
    "apostrophes": "a'",
    "list items": "- ",
    "fences": "```\n",
    "headings": "# a\n",
    "examples": "example:\n",
    "closed tags": "<a>",
    "objects in paragraphs": "{\n\n",
    "objects that hold quotation marks": '{\\"',
    "arrays": "[1,",
    "halves of surrogates": "\\ud800",
    "wordy phrases": "In order to ",
    "schemes": "a:/",
    "users in addresses": "a:/@",
    "private keys": "-----BEGIN PRIVATE KEY-----\n",
    "passwords": "password: ",
    "tokens": "eyJaaaaaaaaaa.",
    "telephone numbers": "+1 ",
    "account numbers": "DE12 ",
    "names of calls": '"name":"',
    "calls": '{"name": "a", "parameters": 1}, ',
    "limits": "limit of 1 tokens ",
    "lengths": "maximum context length is 1 ",
    "boundaries of a form": "\r\n--b",
    "headers of a form": "\r\n--b\r\na: b",
}


def _text(name: str, length: int) -> str:
    if not _UNITS[name]:
        return "a" + "\u0301" * (length // 2) + "\u0327" * (length // 2)
    return (_UNITS[name] * length)[:length]


def _cases() -> Iterator[tuple[str, int]]:
    for name in WHOLE:
        yield name, 0
    for name in STREAMED:
        for size in _LENGTHS:
            yield name, size


@pytest.mark.parametrize(("reader", "size"), list(_cases()))
def test_the_time_for_a_text_grows_with_its_length(reader: str, size: int) -> None:
    for name in _UNITS:
        _check(reader, name, _text(name, _LENGTHS[size]), size)


@pytest.mark.parametrize("reader", GATHERED)
def test_the_time_for_a_gathered_answer_grows_linearly(reader: str) -> None:
    for name in ("quotation marks", "lone surrogates"):
        _check(reader, name, _text(name, _MANY), 1)
    _check(reader, "letters", _text("letters", _LONG), _LONG_PIECE)


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_takes_a_text_that_is_as_it_should_be(reader: str) -> None:
    READERS[reader](_pieces(PLAIN.get(reader, _SENTENCES), 0))


def _check(reader: str, name: str, text: str, size: int) -> None:
    ratio = _growth(READERS[reader], text, size)
    assert ratio < _MOST, f"{_TIMES} times the text of {name} takes {ratio:.0f} times as long"


def _growth(read: Reader, text: str, size: int) -> float:
    """How many times as long a text takes as the first 16th of it; the least of up to five tries."""
    short, long = _pieces(text[: len(text) // _TIMES], size), _pieces(text, size)
    if (took := _seconds(read, long)) < _NOTHING_S:
        return 0
    ratio = float("inf")
    for _ in range(5):
        ratio = min(ratio, took / _seconds(read, short))
        if ratio < _MOST:
            break
        took = _seconds(read, long)
    return ratio


def _pieces(text: str, size: int) -> Sequence[str]:
    return [text[start : start + size] for start in range(0, len(text), size)] if size else [text]


def _seconds(read: Reader, pieces: Sequence[str]) -> float:
    begun = time.thread_time()
    with suppress(ValueError, InvalidInput):  # a text that is refused is read until then
        read(pieces)
    return time.thread_time() - begun
