"""Atomic replacement of a file by one process at a time."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hedgerow.private import open_private


@dataclass(frozen=True)
class Replaceable:
    """A file that this process has locked."""

    path: Path

    def read(self) -> bytes:
        return self.path.read_bytes()

    def replace(self, content: bytes) -> None:
        """Replace the content atomically. Permissions stay, and the owner where this process may set it (root)."""
        number, unfinished = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(number, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(number)
            before = self.path.stat()
            with suppress(OSError):
                os.chown(unfinished, before.st_uid, before.st_gid)
            os.chmod(unfinished, stat.S_IMODE(before.st_mode))
            os.replace(unfinished, self.path)
        except BaseException:
            with suppress(OSError):
                os.unlink(unfinished)
            raise


@contextmanager
def locked(path: Path, *, make: bool = False) -> Iterator[Replaceable]:
    """Lock the file at `path`, or the target of a link. `make` creates a missing file. Raises OSError."""
    real = Path(os.path.realpath(path))
    while True:
        with open(real, "ab" if make else "r+b", opener=open_private) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(file.fileno(), real):
                yield Replaceable(real)
                return


def _is_at(opened: int, path: Path) -> bool:
    """Whether it has not been replaced meanwhile."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(opened), os.stat(path))
    return False
