"""The folder in which the processes of one vLLM meet. vLLM never removes a socket, and would leave them in /tmp.

The folder goes with its process. A process that was killed cannot remove its folder, so the next process that starts
does: a folder has a lock file, which its process holds for as long as it runs.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import weakref
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp

_PREFIX = "hedgerow-vllm-"
_LONGEST_FOLDER = 40  # bytes: the path of a socket has 107 at most
_LOCK = "lock"
_log = logging.getLogger(__name__)


class Sockets:
    """A folder of this process's own, `name`, made for its owner alone."""

    def __init__(self, parent: str = ""):
        """`parent`: where to make it; the folder for temporary files, or /tmp where the path of that is too long."""
        parent = parent or (found if len(found := gettempdir()) <= _LONGEST_FOLDER else "/tmp")
        sweep(Path(parent))
        self.name = mkdtemp(prefix=_PREFIX, dir=parent)
        new = Path(self.name, f"{_LOCK}.new")
        lock = os.open(new, os.O_CREAT | os.O_WRONLY, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        new.rename(new.with_name(_LOCK))  # what has no such file is not swept
        weakref.finalize(self, _remove, Path(self.name), lock)


def sweep(parent: Path) -> None:
    """Remove the folders of processes that are gone. One that belongs to another user stays."""
    for path in sorted(parent.glob(f"{_PREFIX}*/{_LOCK}")):
        with suppress(OSError):
            lock = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent)
                _log.info("removed %s, which a process that was killed has left", path.parent)
            finally:
                os.close(lock)


def _remove(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
