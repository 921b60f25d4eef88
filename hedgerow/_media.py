"""Pictures and recordings that a caller hands over: as bytes, or as the path of a file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import BinaryIO, cast

from hedgerow._errors import invalid
from hedgerow._options import Media
from hedgerow.channel import MAX_MESSAGE_BYTES

SHORTER_AUDIO = "send a shorter or a compressed recording, or play it into a conversation"
PIECE_BYTES = 256 * 1024  # of a recording that is sent in pieces
_BYTES = (bytes, bytearray, memoryview)


def read_all(field: str, given: Media | Sequence[Media]) -> Iterator[bytes]:
    """The contents of one or several; `InvalidArgument` names the one that cannot be sent."""
    one = isinstance(given, (*_BYTES, str, os.PathLike)) or not isinstance(given, Iterable)
    several = cast("Sequence[Media]", [given] if one else given)
    return (read(f"{field}[{index}]", each) for index, each in enumerate(several))


def read(field: str, given: Media) -> bytes:
    """The content; `InvalidArgument` when it cannot be read, is empty, or is more than one message holds."""
    if isinstance(given, _BYTES):
        return _checked(field, bytes(given), len(given), "")
    name = _name(field, given)
    with _opened(field, name) as file:
        return _checked(field, file.read(MAX_MESSAGE_BYTES + 1), os.fstat(file.fileno()).st_size, name)


def pieces(field: str, given: Media) -> Iterator[bytes]:
    """The content in pieces, however long it is. A file that cannot be read or is empty is refused at once; it is
    opened once, because a pipe can be read once."""
    parts: Iterator[bytes]
    if isinstance(given, _BYTES):
        content, name = bytes(given), ""
        parts = (content[at : at + PIECE_BYTES] for at in range(0, len(content), PIECE_BYTES))
    else:
        name = _name(field, given)
        parts = _file_pieces(field, name)
    first = _checked(field, next(parts, b""), 0, name)
    return chain([first], parts)


def _name(field: str, given: str | os.PathLike[str]) -> str:
    """Of a file."""
    if not isinstance(given, str | os.PathLike):
        raise invalid(field, "bytes, or the path of a file", type(given).__name__)
    return os.fspath(given)


def _file_pieces(field: str, name: str) -> Iterator[bytes]:
    with _opened(field, name) as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


@contextmanager
def _opened(field: str, name: str) -> Iterator[BinaryIO]:
    try:
        with open(name, "rb") as file:
            yield file
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        why = error.strerror if isinstance(error, OSError) else error
        raise invalid(field, "a file that can be read", f"{name or 'no name'} ({why})") from None


def _checked(field: str, content: bytes, size: int, name: str) -> bytes:
    where = f" ({name})" if name else ""
    if not content:
        raise invalid(field, "at least 1 byte", f"0{where}")
    if (size := max(size, len(content))) > MAX_MESSAGE_BYTES:
        advice = SHORTER_AUDIO if field == "audio" else "make it smaller"
        raise invalid(field, f"at most {MAX_MESSAGE_BYTES} bytes", f"{size}{where}", advice)
    return content
