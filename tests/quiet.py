"""Has the tests that measure begin when those of other workers are over. They have the machine to themselves then, but
for what computes at a lower priority (`tests/marks.py`).

pytest-xdist starts them last, but beside whatever another worker is still at.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

_LOWER = 10  # a tenth of what those have that measure, where a core is wanted by both


class Turn:
    """A worker's. It counts as at work until it waits, or ends. `file` is common to the workers of a run, which all
    have theirs before the first test begins."""

    def __init__(self, file: Path):
        self._file, self._works = file, True
        self._shared = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)  # closed with the process
        fcntl.flock(self._shared, fcntl.LOCK_SH)

    def wait(self) -> None:
        """Return when every worker waits or has ended; from then on at once."""
        if self._works:
            self.end()
            fcntl.flock(self._shared, fcntl.LOCK_EX)
            fcntl.flock(self._shared, fcntl.LOCK_UN)

    def give_way(self) -> None:
        """What follows only computes. It has a lower priority for as long as the process lasts, and disturbs nobody
        much."""
        if self._works:
            self.end()
            os.nice(_LOWER)

    def end(self) -> None:
        """Nothing here disturbs anybody any more."""
        self._works = False
        fcntl.flock(self._shared, fcntl.LOCK_UN)
        self._file.unlink(missing_ok=True)
