"""A cache without a `database`: its entries are in memory alone, and no text of a tenant is in a temporary file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from services.cache.database import Statement
from services.cache.encryption import Encryption
from services.cache.entries import Entry
from services.cache.semantic_match.traffic import Traffic

if TYPE_CHECKING:
    from services.cache.vectors import Vector


class NoDatabase:
    """In the place of a `Database`. Keeps nothing, and has nothing."""

    path, encryption = "", Encryption()

    def load(self, embedded_by: str, over_ms: int) -> Iterator[tuple[Entry, Vector | None]]:
        return iter(())

    def verified(self, made_by: str) -> list[tuple[Traffic, tuple[object, ...]]]:
        return []

    def sequence(self) -> int:
        return 0

    def apply(self, statements: Iterable[Statement]) -> None:
        """Nothing is on disk, and nothing has to be."""

    def close(self) -> None:
        """There is nothing to close."""
