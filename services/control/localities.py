"""From a service's members to its `ClusterLoadAssignment`, as a client in one region should see it.

Members with the same region, zone and build are one locality, so that a canary's share is its locality's weight. The
client's own region has priority 0; the others stand in, by distance. Without regions all have priority 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from envoy.config.core.v3 import health_check_pb2
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.type.v3.percent_pb2 import FractionalPercent

from services.control.members import Health, Seen
from services.control.topology import MeshService, Region

_Place = tuple[str, str, str]  # region, zone, build
_DROP = "drill"
_WHOLE = 10_000
# Health of a member out of service: whether it may still be asked for calls in flight there.
_OUT = {Health.NOT_SERVING: health_check_pb2.DRAINING}


def assignment(
    name: str,
    service: MeshService,
    seen: Sequence[Seen],
    regions: Mapping[str, Region],
    region: str,
    *,
    weigh_all: bool,
) -> ClusterLoadAssignment:
    """The endpoints of `xds:///<name>` for a client in `region` (empty or unknown: all regions are equal). A locality's
    weight is that of its members in service, so that the remaining members of a zone do not get the whole zone's load.
    With `weigh_all` it is that of all members, for clients (Envoy) that scale it themselves."""
    priorities = ranks(regions, region, {each.member.region for each in seen})
    return ClusterLoadAssignment(
        cluster_name=name,
        endpoints=[
            _locality(place, of, priorities[place[0]], weigh_all=weigh_all) for place, of in _grouped(seen).items()
        ],
        policy=_policy(service),
    )


def ranks(regions: Mapping[str, Region], here: str, used: Iterable[str]) -> dict[str, int]:
    """The priority of each region in use, seen from `here`: 0, 1, … without gaps, as xDS demands."""
    if here not in regions:
        return dict.fromkeys(used, 0)
    nearest_first = sorted(used, key=lambda name: (distance(regions[here], regions[name]), name != here, name))
    return {name: rank for rank, name in enumerate(nearest_first)}


def distance(one: Region, other: Region) -> float:
    """Along the great circle, in radians: the haversine formula."""
    latitudes = math.radians(one.latitude), math.radians(other.latitude)
    across = math.radians(other.longitude - one.longitude)
    chord = math.sin((latitudes[1] - latitudes[0]) / 2) ** 2
    chord += math.cos(latitudes[0]) * math.cos(latitudes[1]) * math.sin(across / 2) ** 2
    return 2 * math.asin(math.sqrt(min(1.0, chord)))


def percent(value: float) -> FractionalPercent:
    """A percentage, to four decimals."""
    return FractionalPercent(numerator=round(value * 10_000), denominator="MILLION")


def _grouped(seen: Sequence[Seen]) -> dict[_Place, list[Seen]]:
    places: dict[_Place, list[Seen]] = {}
    for each in seen:
        member = each.member
        places.setdefault((member.region, member.zone, member.build), []).append(each)
    return places


def _locality(place: _Place, of: Sequence[Seen], priority: int, *, weigh_all: bool) -> dict[str, Any]:
    """A locality. Its weight is the sum of its members'; members' weights are shares of `_WHOLE`. In a ring gRPC
    multiplies both (1.85 does not divide by the sum, as gRFC A113 says it should): with equal sums in all localities
    both are right."""
    region, zone, build = place
    counted = of if weigh_all else ([each for each in of if each.in_service] or of)
    total = sum(each.member.weight for each in counted)
    return {
        "locality": {"region": region, "zone": zone, "sub_zone": build},
        "lb_endpoints": [
            _endpoint(each, round(each.member.weight * _WHOLE / total) if weigh_all or each.in_service else 1)
            for each in of
        ],
        "load_balancing_weight": {"value": total},
        "priority": priority,
    }


def _endpoint(seen: Seen, share: int) -> dict[str, Any]:
    address = {"socket_address": {"address": seen.member.host, "port_value": seen.member.port}}
    return {
        "endpoint": {"address": address},
        "health_status": _status(seen),
        "load_balancing_weight": {"value": max(1, share)},
    }


def _status(seen: Seen) -> int:
    if seen.health is Health.SERVING:
        return int(health_check_pb2.HEALTHY)
    return int(health_check_pb2.UNKNOWN if seen.in_service else _OUT.get(seen.health, health_check_pb2.UNHEALTHY))


def _policy(service: MeshService) -> dict[str, Any]:
    if service.drill and service.drill.drop_percent:
        return {"drop_overloads": [{"category": _DROP, "drop_percentage": percent(service.drill.drop_percent)}]}
    return {}
