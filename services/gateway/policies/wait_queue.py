"""A limiter's lines: those of one class that wait, within their tenant's share or not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Generic, TypeVar

from services.gateway.policies.codel import Patience
from services.gateway.policies.priority import CLASSES
from services.gateway.policies.ticket import Shed
from services.runtime.policy.fair import FairQueue, Rank

P = TypeVar("P")


@dataclass(slots=True, eq=False)
class Waiter(Generic[P]):
    """A request that waits in a line."""

    tenant: str
    weight: float
    rank: Rank
    line: Line[P]
    until: float  # on the limiter's clock: the end of its patience or its budget
    outcome: asyncio.Future[P | Shed]  # a refusal is a result: an exception that nobody fetches would be logged


class Line(Generic[P]):
    """`place` is its turn: 0 is served first. Those within their share wait for their full time also in overload: it is
    the others' doing, places of theirs will become free, and they are never more than there are places."""

    def __init__(self, place: int, queue_s: float):
        self.place, self.kind = place, CLASSES[place % len(CLASSES)]
        self.within_share = place < len(CLASSES)
        self.dear = self.kind in ("critical", "high")
        self.queue = FairQueue[Waiter[P]]()
        self.patience = Patience(queue_s, overload_s=queue_s) if self.within_share else Patience(queue_s)
