"""The logs of a mesh's services, as their last lines and as what comes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_BLOCK = 64 * 1024
_MOST_AT_ONCE = 1024 * 1024


def named(folder: Path, service: str | None = None) -> dict[str, Path]:
    """The logs in a state folder by the services' names: all, or those of `service` and its replicas."""
    found = {path.stem: path for path in sorted((folder / "logs").glob("*.log"))}
    if service is None:
        return found
    return {name: path for name, path in found.items() if name == service or name.startswith(f"{service}-")}


class Log:
    """One log, read from its end on."""

    def __init__(self, path: Path):
        self._path, self._at, self._rest = path, 0, b""

    def last(self, count: int) -> list[str]:
        """The last `count` lines. `more` goes on behind them. Raises OSError."""
        with open(self._path, "rb") as file:
            start = end = self._at = file.seek(0, os.SEEK_END)
            found = b""
            while start and found.count(b"\n") <= count:
                start = max(0, end - len(found) - _BLOCK)
                file.seek(start)
                found = file.read(end - len(found) - start) + found
        return self._lines(found)[-count:] if count else self._lines(found)[:0]

    def more(self) -> Iterator[str]:
        """What has come since. A log that was cut, as those that are full are, is read from its beginning."""
        with open(self._path, "rb") as file:
            if file.seek(0, os.SEEK_END) < self._at:
                self._at, self._rest = 0, b""
            file.seek(self._at)
            found = file.read(_MOST_AT_ONCE)
        self._at += len(found)
        yield from self._lines(found)

    def rest(self) -> list[str]:
        """The line that has no end yet."""
        return [_text(self._rest)] if self._rest else []

    def _lines(self, found: bytes) -> list[str]:
        *lines, self._rest = (self._rest + found).split(b"\n")
        return [_text(line) for line in lines]


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r")
