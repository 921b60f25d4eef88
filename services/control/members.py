"""The members of a service: its endpoints with names looked up, their health, and those that clients use."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from services.control.topology import Endpoint, Service


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


def members(endpoints: Sequence[Endpoint], lookup: Lookup) -> tuple[Member, ...]:
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


def identity(name: str, service: Service) -> str:
    """The identity in the certificates of a service's endpoints."""
    return service.identity or name.partition("-")[0]
