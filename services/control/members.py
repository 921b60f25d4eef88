"""The members of a service: its endpoints with names looked up, their health, and those that clients use.

Names are looked up again and again: a headless service of Kubernetes has as many addresses as pods.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from services.control import metrics
from services.control.topology import MeshService, ServiceEndpoint

Resolve = Callable[[str], Awaitable[Sequence[str]]]
_log = logging.getLogger(__name__)


class Health(IntEnum):
    """The status of an endpoint's health service. Numbers as in the contract."""

    UNKNOWN = 0  # not asked yet
    SERVING = 1
    NOT_SERVING = 2
    UNREACHABLE = 3


@dataclass(frozen=True, slots=True)
class Member:
    """One process that serves: `host` is an IP address."""

    host: str
    port: int
    region: str = ""
    zone: str = ""
    build: str = ""
    weight: int = 1
    http_port: int = 0

    @property
    def address(self) -> str:
        """`host:port`, as a channel takes it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Seen:
    """A member with its health."""

    member: Member
    health: Health
    in_service: bool


Lookup = Callable[[str], Sequence[str]]  # a host's IP addresses as they are known now


def split(address: str) -> tuple[str, int]:
    """(host, port) of `host:port`, without the brackets of an IPv6 address."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def is_ip(host: str) -> bool:
    """Whether there is nothing to look up."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def members(endpoints: Sequence[ServiceEndpoint], lookup: Lookup) -> tuple[Member, ...]:
    """All addresses of all endpoints, in the file's order. An address that is named twice counts once, as first named:
    xDS clients refuse an assignment that names an address twice."""
    found: dict[tuple[str, int], Member] = {}
    for endpoint in endpoints:
        name, port = split(endpoint.address)
        for host in (name,) if is_ip(name) else lookup(name):
            place = endpoint.region, endpoint.zone, endpoint.build
            member = Member(host, port, *place, endpoint.weight, endpoint.http_port)
            found.setdefault((host, port), member)
    return tuple(found.values())


def seen(of: Sequence[Member], health: Mapping[str, Health]) -> tuple[Seen, ...]:
    """Members with their health, by address. Those that say SERVING are in service; where none does, all are: it may be
    this process alone that cannot reach them, and one that may work is better than none."""
    healths = [health.get(member.address, Health.UNKNOWN) for member in of]
    none_serves = Health.SERVING not in healths
    return tuple(Seen(m, h, none_serves or h is Health.SERVING) for m, h in zip(of, healths, strict=True))


def over_http(of: Sequence[Seen]) -> tuple[Seen, ...]:
    """The members that serve HTTP, with their HTTP ports."""
    ports = ((each, each.member.http_port) for each in of)
    return tuple(replace(each, member=replace(each.member, port=port)) for each, port in ports if port)


def identity(name: str, service: MeshService) -> str:
    """The identity in the certificates of a service's endpoints."""
    return service.identity or name.partition("-")[0]


class ResolvedNames:
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
