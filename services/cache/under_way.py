"""Changes of this process that Redis is sent, until their news come back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from services.cache.changes import Change, Put
from services.cache.redis_entries import Stored
from services.cache.store import Made


@dataclass(eq=False, slots=True)
class Sent:
    """A change under way. `entries`: how many this process removed itself. `at`: its position, once that is known."""

    change: Change
    entries: int = 1
    acknowledged: bool = False
    at: int = 0
    done: asyncio.Future[Made] = field(default_factory=asyncio.Future)

    def finish(self, made: Made) -> None:
        """Tell who made the change, unless that is done."""
        if not self.done.done():
            self.done.set_result(made)

    def fail(self, error: Exception) -> None:
        """Tell who made the change that it is not made, unless that is done."""
        if not self.done.done():
            self.done.set_exception(error)


class UnderWay:
    """By number. Number 0 is nobody's: it stands for what is told later."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._sent: dict[int, Sent] = {}
        self._waiting: list[int] = []

    def __len__(self) -> int:
        return len(self._sent)

    def add(self, sent: Sent) -> None:
        """One more that is to be sent."""
        sent.done.add_done_callback(_retrieve)
        number = next(self._numbers)
        self._sent[number] = sent
        self._waiting.append(number)

    def take(self, count: int) -> Sequence[tuple[int, Sent]]:
        """Up to `count` that are to be sent next."""
        numbers, self._waiting = self._waiting[:count], self._waiting[count:]
        return [(number, self._sent[number]) for number in numbers]

    def pop(self, number: int) -> Sent | None:
        """Its news are here, or never will be."""
        return self._sent.pop(number, None)

    def pop_all(self) -> Sequence[Sent]:
        """Redis was lost: in their order."""
        sent, self._sent, self._waiting = self._sent, {}, []
        return list(sent.values())

    def put(self, number: int) -> Stored | None:
        """What a change puts."""
        sent = self._sent.get(number)
        return (sent.change.entry, sent.change.vector) if sent and isinstance(sent.change, Put) else None

    def removes(self, key: str, tenant: str) -> bool:
        """Whether an entry is being removed."""
        changes = (sent.change for sent in self._sent.values() if not isinstance(sent.change, Put))
        return any(change.removes(key, tenant) for change in changes)


def _retrieve(future: asyncio.Future[Made]) -> None:
    """Who made the change may have left."""
    if not future.cancelled():
        future.exception()
