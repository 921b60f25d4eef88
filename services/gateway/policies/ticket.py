"""What a request shows at a limiter, and what it is told when it does not get in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.runtime.deadline import Deadline
from services.runtime.errors import Exhausted


@dataclass(frozen=True, slots=True)
class Ticket:
    """Who asks for a place. `weight` is the tenant's share against others of its class. An item of a batch takes only
    what others can spare (`pace.py`), and its `placed` is called when it has a place."""

    score: int
    tenant: str
    weight: float
    deadline: Deadline
    placed: Callable[[], None] | None = None


class Shed(Exhausted):
    """Refused in favour of others; the metadata's `why`: load, pressure, full, displaced or expired."""

    reason = "SHED"
