"""Reports of a pull while it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

State = Literal["waiting", "present", "downloading", "unpacking", "converting", "placed", "note"]


@dataclass(frozen=True)
class Step:
    """One report. `done` and `total` are bytes of a download; 0: unknown."""

    model: str
    state: State
    detail: str = ""
    done: int = 0
    total: int = 0


Report = Callable[[Step], None]


def ignore(_: Step) -> None:
    """Ignore a report."""


def bytes_in(folder: Path) -> int:
    """The bytes of all files in a folder that another process is filling: files and folders may go meanwhile."""
    total = 0
    for place, _, names in os.walk(folder):  # it passes over folders that have gone
        for name in names:
            with suppress(OSError):
                total += os.path.getsize(os.path.join(place, name))
    return total
