"""Which replicas serve, as the control plane lists them. Its own words for it are read in `discovery.py`, which is
imported where an address asks for it."""

from __future__ import annotations

from dataclasses import dataclass

from services.gateway.upstream.balance import Locality

SCHEME = "xds:///"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One replica in service."""

    address: str
    locality: Locality


@dataclass(frozen=True, slots=True)
class Assignment:
    """The replicas of one service. `drop_share` of the calls are to be refused, while a drill runs."""

    endpoints: tuple[Endpoint, ...]
    drop_share: float = 0.0
