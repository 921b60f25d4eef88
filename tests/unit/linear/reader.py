"""What a reader is: it is given a text in pieces, and reads it as a service does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Reader = Callable[[Sequence[str]], object]


def whole(read: Callable[[str], object]) -> Reader:
    """One that is given a text as a whole."""
    return lambda pieces: read("".join(pieces))
