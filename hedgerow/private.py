"""Files and folders for their owner's eyes alone, on behalf of the services and of `hedgerow up`."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

UMASK = 0o077  # of a process all of whose files are: 0600, and 0700 for folders
_OTHERS = 0o077


def private_folder(path: Path) -> None:
    """Make the folder, or take it from others. The current folder stays as it is."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not Path.cwd().is_relative_to(path.resolve()):
        with suppress(OSError):  # another user's
            take_from_others(path)


def take_from_others(path: Path) -> bool:
    """Whether there was anything to take. Raises OSError where it cannot be: not our file, or a file system without."""
    mode = path.stat().st_mode & 0o777
    if not mode & _OTHERS:
        return False
    path.chmod(mode & ~_OTHERS)
    return True


def open_private(path: str, flags: int) -> int:
    """For `open(…, opener=open_private)`: a file that is made is 0600."""
    return os.open(path, flags, 0o600)
