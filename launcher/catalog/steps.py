"""Reports of a pull while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
