"""What is found out about an answer's form."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mismatch:
    """`where` is for accounts, and quotes nothing of the answer; `why` may, and is for the model that wrote it."""

    where: str
    why: str


class Unchecked(Exception):
    """Nobody can say whether it matches: that would take too long, or cannot be told at all. Quotes nothing."""
