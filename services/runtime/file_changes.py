"""Detects changed files."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_Stamp = tuple[int, int, int] | None  # differs when a file was written or replaced; None where there is none


class FileChanges:
    """Detects changes of files. A missing file is a state like any other."""

    def __init__(self, *files: Path):
        self._files = files
        self._read = self._last = self._now()

    def changed(self) -> bool:
        """Whether to read them again: they have changed since, and are as they were at the last look, because a writer
        may not be done. They then count as read."""
        now = self._now()
        changed = now != self._read and now == self._last
        self._last = now
        if changed:
            self._read = now
        return changed

    def _now(self) -> tuple[_Stamp, ...]:
        return tuple(map(_stamp, self._files))


def _stamp(file: Path) -> _Stamp:
    with suppress(OSError):
        status = os.stat(file)
        return status.st_mtime_ns, status.st_size, status.st_ino
    return None
