"""Slots for connections. An idle connection can lose its slot to a new one.

When all slots are taken, the connection that has been idle longest loses its slot to a new one; connections on which a
tenant has authenticated come last. So idle connections keep no client out.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Protocol


class Tracked(Protocol):
    """A connection. `address`: its client's; `authenticated`: whether a request on it had a tenant's credential."""

    address: str
    authenticated: bool

    def abort(self) -> None:
        """Close it at once."""


class ConnectionSlots:
    """`most` slots, of which a client's address may have `most_of_address`."""

    def __init__(self, most: int, most_of_address: int):
        self._most, self._most_of_address = most, most_of_address
        self._inside: set[Tracked] = set()
        self._taken: Counter[str] = Counter()  # places by address
        self._idle: dict[bool, OrderedDict[Tracked, None]] = {False: OrderedDict(), True: OrderedDict()}

    def acquire(self, new: Tracked) -> bool:
        """Take a slot. False if there is none."""
        if self._taken[new.address] >= self._most_of_address:
            return False
        if len(self._inside) >= self._most and not self._close_idle():
            return False
        self._inside.add(new)
        self._taken[new.address] += 1
        return True

    def release(self, gone: Tracked) -> None:
        """Release its slot, if it has one."""
        if gone not in self._inside:
            return
        self._inside.discard(gone)
        self.busy(gone)
        self._taken[gone.address] -= 1
        if not self._taken[gone.address]:
            del self._taken[gone.address]

    def idle(self, connection: Tracked) -> None:
        """Record that the connection has no request."""
        if connection in self._inside:
            self._idle[connection.authenticated][connection] = None

    def busy(self, connection: Tracked) -> None:
        """Record that the connection has a request."""
        for idle in self._idle.values():
            idle.pop(connection, None)

    def _close_idle(self) -> bool:
        longest = next((next(iter(idle)) for idle in self._idle.values() if idle), None)
        if longest is None:
            return False
        self.release(longest)
        longest.abort()
        return True
