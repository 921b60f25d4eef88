"""The logs of a mesh's services, as their last lines and as what comes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_SHARED = ("hedgerow", "providers")  # processes of several services, whose lines are in one log
_LINE = re.compile(rb"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ [A-Z]+ (\S+) ", re.MULTILINE)
_BLOCK = 64 * 1024
MOST_AT_ONCE = 1024 * 1024


def named(folder: Path, service: str | None = None) -> dict[str, Path]:
    """The logs in a state folder by the services' names: all, or those of `service` and its replicas."""
    found = {path.stem: path for path in sorted((folder / "logs").glob("*.log"))}
    if service is None:
        return found
    return {name: path for name, path in found.items() if name == service or name.startswith(f"{service}-")}


class LogPlace(NamedTuple):
    """Where a service's lines are: in a log of its own, or those of `service` in a log that several share."""

    path: Path
    service: str = ""

    def open(self) -> Log:
        return Log(self.path, self.service)


def places(folder: Path, service: str | None = None, latest: int | None = None) -> dict[str, LogPlace]:
    """`named`, and where a service and its replicas have no log of their own, their lines in those that are shared, or
    in the `latest` bytes of those."""
    if (own := named(folder, service)) or service is None:
        return {name: LogPlace(path) for name, path in own.items()}
    shared = [path for name, path in named(folder).items() if name in _SHARED]
    return {
        name: LogPlace(path, name)
        for path in shared
        for name in sorted(_services_in(path, latest))
        if name == service or name.startswith(f"{service}-")
    }


def service_of(log: str, line: str, before: str) -> str:
    """The service that a line of a log is of; `before`: that of the line before it, which a line without a name goes
    on."""
    if log not in _SHARED:
        return log
    found = _LINE.match(line.encode())
    return found[1].decode() if found else before


def known(folder: Path) -> list[str]:
    """The names of logs, and of the services whose lines are in those that are shared."""
    own = named(folder)
    return sorted({*own, *(service for name in _SHARED if name in own for service in _services_in(own[name]))})


def _services_in(path: Path, latest: int | None = None) -> set[str]:
    with open(path, "rb") as file:
        if latest is not None:
            file.seek(max(0, file.seek(0, os.SEEK_END) - latest))
        return {_text(found) for found in _LINE.findall(file.read())}


class Log:
    """One log, read from its end on; with a `service`, the lines of that service alone."""

    def __init__(self, path: Path, service: str = ""):
        self._path, self._at, self._rest = path, 0, b""
        self._service, self._is_its = service.encode(), not service

    def last(self, count: int) -> list[str]:
        """The last `count` lines. `more` goes on behind them. Raises OSError."""
        with open(self._path, "rb") as file:
            start = end = self._at = file.seek(0, os.SEEK_END)
            found = b""
            while start and (self._service or found.count(b"\n") <= count):
                start = max(0, end - max(2 * len(found), _BLOCK)) if not self._service else 0
                file.seek(start)
                found = file.read(end - start)
        return self._lines(found)[-count:] if count else self._lines(found)[:0]

    def more(self) -> Iterator[str]:
        """The lines since the last call. A log that was truncated because it was full is read from its beginning."""
        with open(self._path, "rb") as file:
            if file.seek(0, os.SEEK_END) < self._at:
                self._at, self._rest = 0, b""
            file.seek(self._at)
            found = file.read(MOST_AT_ONCE)
        self._at += len(found)
        yield from self._lines(found)

    def rest(self) -> list[str]:
        """The line that has no end yet."""
        return [_text(self._rest)] if self._rest and self._wants(self._rest) else []

    def _lines(self, found: bytes) -> list[str]:
        *lines, self._rest = (self._rest + found).split(b"\n")
        return [_text(line) for line in lines if self._wants(line)]

    def _wants(self, line: bytes) -> bool:
        """A line without a service goes on where the one before it ended: a traceback."""
        if self._service and (begins := _LINE.match(line)):
            self._is_its = begins[1] == self._service
        return self._is_its


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r")
