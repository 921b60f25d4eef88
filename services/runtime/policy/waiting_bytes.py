"""A bound on the bytes of requests that wait: for the embedder, for the disk, for Redis.

A tenant may hold as much as is free, so one alone gets half of the room, and whoever comes next finds some.
Source: Choudhury and Hahne, Dynamic queue length thresholds for shared-memory packet switches, IEEE/ACM ToN 1998.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from services.runtime.errors import Exhausted

_COME_BACK_S = 1.0


class WaitingBytes:
    """`max_bytes` for all tenants together."""

    def __init__(self, max_bytes: int):
        self._max_bytes, self._taken = max_bytes, 0
        self._held: dict[str, int] = {}

    @contextmanager
    def hold(self, tenant: str, size: int) -> Iterator[None]:
        """Room for a request of `size` bytes while the block runs. Raises `Exhausted`."""
        self.take(tenant, size)
        try:
            yield
        finally:
            self.give_back(tenant, size)

    def take(self, tenant: str, size: int) -> None:
        """Room for a request of `size` bytes until `give_back`. Raises `Exhausted`."""
        held, free = self._held.get(tenant, 0), self._max_bytes - self._taken
        if held + size > free:
            raise Exhausted(
                f"requests that wait: {held} bytes of this tenant, {free} bytes free, and one more has {size} bytes",
                retry_delay_s=_COME_BACK_S,
            )
        self._taken += size
        self._held[tenant] = held + size

    def give_back(self, tenant: str, size: int) -> None:
        self._taken -= size
        self._held[tenant] -= size
        if not self._held[tenant]:
            del self._held[tenant]
