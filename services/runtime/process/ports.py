"""Ports that a process has before it serves on them, and for as long as it lives: its servers, one after the other or
at once, and its workers share them (SO_REUSEPORT), and a second service on the same port is refused.
"""

from __future__ import annotations

import socket
import weakref
from collections.abc import Collection, Iterator

from services.runtime.process.config import ServiceSettings


class PortTaken(Exception):
    """The process cannot listen at the address; the message names it and says why."""


Place = tuple[str, str]  # a setting, and the address that it has: host:port


class Claims:
    """The places that this process has claimed."""

    def __init__(self) -> None:
        self._held: dict[Place, socket.socket] = {}
        weakref.finalize(self, _close, self._held)

    def add(self, name: str, settings: ServiceSettings) -> None:
        """Claim the places of the service `name` that are new. Raises `PortTaken`, and has then claimed none."""
        claimed, ours = dict[Place, socket.socket](), {_port(address) for _, address in self._held}
        try:
            for setting, address in set(places(settings)) - self._held.keys():
                claimed[setting, address] = claim(address, f"{name} {setting}", ours=_port(address) in ours)
        except PortTaken:
            _close(claimed)
            raise
        self._held |= claimed

    def keep(self, kept: Collection[Place]) -> None:
        """Leave all other places."""
        _close(self._held, kept)

    def ports(self, settings: ServiceSettings) -> tuple[int, ...]:
        """Those of the places of `settings`, also where the kernel has chosen them."""
        return tuple(self._held[place].getsockname()[1] for place in places(settings))


def places(settings: ServiceSettings) -> Iterator[Place]:
    """Where the servers of a service share ports. A path is no such place where one process serves."""
    for setting in settings.shared_addresses:
        address = getattr(settings, setting)
        if address and (settings.processes > 1 or not address.startswith("unix:")):
            yield setting, address


def claim(address: str, setting: str = "address", *, ours: bool = False) -> socket.socket:
    """A socket that has `address` and does not listen: from now on only workers of this user may have it too.

    Bound before it may be shared, so that this fails where another process, workers of another parent included, has the
    port; not so where the port is `ours` already, at another host. Raises `PortTaken`.
    """
    host, _, port = address.rpartition(":")
    try:
        family, kind, *_, place = socket.getaddrinfo(
            host.strip("[]") or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        claimed = socket.socket(family, kind)
    except (OSError, ValueError) as error:
        raise PortTaken(f"{setting}: {address} is no host and port to share: {error}") from None
    try:
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just left is free
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, ours)
        claimed.bind(place)
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)  # but this one is not, even before it listens
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError as error:
        claimed.close()
        raise PortTaken(f"{setting}: cannot listen at {address}: {error.strerror}") from None
    return claimed


def _port(address: str) -> str:
    return address.rpartition(":")[2]


def _close(held: dict[Place, socket.socket], kept: Collection[Place] = ()) -> None:
    for place in held.keys() - set(kept):
        held.pop(place).close()
