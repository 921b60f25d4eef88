"""The protocol of a reader: it gets a text in pieces, and reads it as a service does."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

Reader = Callable[[Sequence[str]], object]
T = TypeVar("T")


def whole(read: Callable[[str], object]) -> Reader:
    """One that is given a text as a whole."""
    return lambda pieces: read("".join(pieces))


def ran(steps: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing but its next turn."""
    while True:
        try:
            steps.send(None)
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]


def encodable(text: str) -> str:
    """The text without halves of surrogates, which a message cannot hold."""
    return text.encode(errors="replace").decode()
