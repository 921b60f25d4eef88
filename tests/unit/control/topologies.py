"""Topologies for tests, written as an operator would."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from services.control.members import Health, Seen, members, seen
from services.control.snapshot import Kind, Renderer, Snapshot
from services.control.topology import Topology

REGIONS = """
regions:
  west: {latitude: 52.5, longitude: 13.4}
  east: {latitude: 35.7, longitude: 139.7}
  south: {latitude: -33.9, longitude: 18.4}
"""
HERE = Path("/etc/envoy")


def topology(text: str) -> Topology:
    return Topology.model_validate(yaml.safe_load(text))


def all_members(of: Topology, health: Mapping[str, Health] | None = None) -> dict[str, tuple[Seen, ...]]:
    """The members of every service; SERVING where `health`, by address, has no other. Names have no
    members."""

    def one(endpoints: Any) -> tuple[Seen, ...]:
        found = members(endpoints, lambda _: ())
        return seen(found, {each.address: (health or {}).get(each.address, Health.SERVING) for each in found})

    return {name: one(service.endpoints) for name, service in of.services.items()}


def rendered(
    text: str, region: str = "", kind: Kind = Kind.GRPC, health: Mapping[str, Health] | None = None
) -> Snapshot:
    of = topology(text)
    return Renderer(of, HERE).snapshot(all_members(of, health), region, kind)


def unpacked(snapshot: Snapshot, type_url: str, name: str, cls: Any) -> Any:
    """One resource of a snapshot, as a message."""
    message = cls()
    body = snapshot[type_url][name].body
    assert body is not None
    assert body.Unpack(message)
    return message
