"""Strict JSON of RFC 8259, without the extensions of Python's parser: forwarded JSON must have the same meaning for its
next reader, and must be possible to send. It is written without blanks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from services.runtime.aside import LARGE_BYTES

_SURROGATE = re.compile(r"\\u[dD]")  # this search takes a third of the time of `"\\u" in text`
_MOST_DIGITS = 400  # the largest float has 309
_LONG = 64  # elements of an array
_ENCODER = json.JSONEncoder(separators=(",", ":"))  # `json.dumps` would make one for each call
Write = Callable[[object], bytes]


def loads(text: str) -> Any:
    """Parse `text`. Raises ValueError for invalid JSON, for nesting too deep for Python, for `NaN`, for numbers beyond
    a float or of more than 400 digits, for a name that occurs twice in an object, and for half a surrogate pair, which
    UTF-8 cannot encode."""
    try:
        parsed = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if _SURROGATE.search(text):
        _refuse_surrogates(parsed)
    return parsed


def quoted(text: str) -> bytes:
    """A JSON string. Escaped to ASCII: some clients split lines at U+2028 and U+0085."""
    return _ENCODER.encode(text).encode()


def compact(value: object) -> bytes:
    """JSON without blanks. In ASCII, so that any text can be sent."""
    return _ENCODER.encode(value).encode()


def in_steps(value: object, write: Write = compact) -> bytes:
    """The same of a large value. Between two elements of a long array a thread lets the event loop run."""
    if isinstance(value, dict):
        return b"{" + b",".join([write(name) + b":" + in_steps(each, write) for name, each in value.items()]) + b"}"
    if isinstance(value, list):
        step = write if len(value) > _LONG else partial(in_steps, write=write)
        return b"[" + b",".join(map(step, value)) + b"]"
    return write(value)


def written(value: object, size: int) -> bytes:
    """JSON without blanks, of a value whose objects have about `size`, as `aside` counts it."""
    return (in_steps if size > LARGE_BYTES else compact)(value)


def _number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"number out of range: {text[:32]}")
    return number


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:  # reading and writing n digits takes n² steps
        raise ValueError(f"number out of range: {text[:32]}")
    return int(text)


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the name {twice[:32]!r} twice in one object")
    return made


def _refuse_surrogates(parsed: Any) -> None:
    try:
        json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"half a surrogate pair, \\u{ord(error.object[error.start]):04x}") from None


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_number, parse_int=_whole, parse_constant=_constant)
