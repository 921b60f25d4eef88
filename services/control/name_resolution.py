"""Names of endpoints, looked up again and again: a headless service of Kubernetes has as many addresses as pods."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence

from services.control import metrics

Resolve = Callable[[str], Awaitable[Sequence[str]]]
_log = logging.getLogger(__name__)


class Names:
    """IP addresses by name. A look-up that fails leaves the last answer in force."""

    def __init__(self, timeout_s: float, resolve: Resolve | None = None):
        self._timeout_s, self._resolve = timeout_s, resolve or _look_up
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._failing: set[str] = set()

    def __getitem__(self, name: str) -> tuple[str, ...]:
        """All addresses of a name, sorted; empty until it was found once."""
        return self._addresses.get(name, ())

    async def refresh(self, names: Iterable[str]) -> bool:
        """Look these up, and forget all others. Returns whether anything has changed."""
        before, wanted = dict(self._addresses), set(names)
        found = await asyncio.gather(*(self._one(name) for name in wanted))
        self._addresses = dict(zip(wanted, found, strict=True))
        self._failing &= wanted
        return any(before.get(name, ()) != now for name, now in self._addresses.items())

    async def _one(self, name: str) -> tuple[str, ...]:
        try:
            async with asyncio.timeout(self._timeout_s):
                found = tuple(sorted(set(await self._resolve(name))))
        except (OSError, UnicodeError, TimeoutError) as error:
            metrics.LOOKUPS_FAILED.inc()
            if name not in self._failing:
                _log.warning(
                    "%s cannot be looked up (%s); its last addresses stand", name, error or type(error).__name__
                )
            self._failing.add(name)
            return self[name]
        self._failing.discard(name)
        return found


async def _look_up(name: str) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]
