"""Assignments: the members' localities, weights and priorities."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.core.v3 import health_check_pb2
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment

from services.control.localities import assignment, ranks
from services.control.members import Health
from tests.unit.control.topologies import REGIONS, all_members, topology

HEALTHY, UNHEALTHY, DRAINING, UNKNOWN = (
    health_check_pb2.HEALTHY,
    health_check_pb2.UNHEALTHY,
    health_check_pb2.DRAINING,
    health_check_pb2.UNKNOWN,
)
EVERYWHERE = f"""{REGIONS}
services:
  cache:
    endpoints:
      - {{address: "10.0.0.1:1", region: east}}
      - {{address: "10.0.0.2:1", region: west}}
      - {{address: "10.0.0.3:1", region: south}}
"""
CANARY = """
services:
  llm-quality:
    endpoints:
      - {address: "10.0.0.1:1", weight: 60}
      - {address: "10.0.0.2:1", weight: 35}
      - {address: "10.0.0.3:1", weight: 5, build: canary}
"""


def assigned(text: str, region: str = "", *, weigh_all: bool = False, **health: Health) -> ClusterLoadAssignment:
    """The assignment of the only service; `health` names the last number of an address: `n2=Health.UNREACHABLE`."""
    of = topology(text)
    ((name, service),) = of.services.items()
    seen = all_members(of, {f"10.0.0.{key[1:]}:1": value for key, value in health.items()})[name]
    return assignment(name, service, seen, of.regions, region, weigh_all=weigh_all)


def priorities(of: ClusterLoadAssignment) -> dict[str, int]:
    return {each.locality.region: each.priority for each in of.endpoints}


def statuses(of: ClusterLoadAssignment) -> list[int]:
    return [endpoint.health_status for locality in of.endpoints for endpoint in locality.lb_endpoints]


def shares(of: ClusterLoadAssignment) -> dict[str, float]:
    """The shares of traffic by address, for a client that divides by each locality's sum."""
    whole = sum(each.load_balancing_weight.value for each in of.endpoints)
    found = {}
    for locality in of.endpoints:
        total = sum(each.load_balancing_weight.value for each in locality.lb_endpoints)
        for each in locality.lb_endpoints:
            share = locality.load_balancing_weight.value / whole * each.load_balancing_weight.value / total
            found[each.endpoint.address.socket_address.address] = share
    return found


def multiplied(of: ClusterLoadAssignment) -> dict[str, float]:
    """The same as gRPC's ring works them out: it multiplies, and does not divide."""
    products = {
        each.endpoint.address.socket_address.address: locality.load_balancing_weight.value
        * each.load_balancing_weight.value
        for locality in of.endpoints
        for each in locality.lb_endpoints
    }
    return {address: product / sum(products.values()) for address, product in products.items()}


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        ("west", {"west": 0, "east": 1, "south": 2}),  # 8,900 and 9,600 km
        ("east", {"east": 0, "west": 1, "south": 2}),
        ("south", {"south": 0, "west": 1, "east": 2}),
        ("", {"east": 0, "west": 0, "south": 0}),
        ("north", {"east": 0, "west": 0, "south": 0}),
    ],
)
def test_the_own_region_is_first_then_by_distance_and_all_are_equal_without_one(region: str, expected: dict[str, int]):
    assert priorities(assigned(EVERYWHERE, region)) == expected


def test_priorities_have_no_gaps_where_the_nearest_regions_have_no_endpoint():
    regions = topology(EVERYWHERE).regions
    assert ranks(regions, "west", ["south"]) == {"south": 0}
    assert ranks(regions, "west", ["south", "east"]) == {"east": 0, "south": 1}


def test_two_regions_in_the_same_place_still_put_the_own_one_first():
    regions = topology(EVERYWHERE).regions | {"berlin": topology(EVERYWHERE).regions["west"]}
    assert ranks(regions, "west", ["berlin", "west"]) == {"west": 0, "berlin": 1}


def test_members_of_one_region_zone_and_build_are_one_locality_named_by_them():
    of = assigned(CANARY)
    assert [each.locality.sub_zone for each in of.endpoints] == ["", "canary"]
    assert [len(each.lb_endpoints) for each in of.endpoints] == [2, 1]


@pytest.mark.parametrize("worked_out", [shares, multiplied])
def test_a_canary_gets_its_share_however_a_client_works_it_out(worked_out):
    expected = {"10.0.0.1": 0.60, "10.0.0.2": 0.35, "10.0.0.3": 0.05}
    assert worked_out(assigned(CANARY)) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("scales_itself", "weights"), [(False, [35, 5]), (True, [95, 5])])
def test_a_locality_weighs_what_its_members_in_service_do_or_all_where_a_client_scales_it(scales_itself, weights):
    of = assigned(CANARY, weigh_all=scales_itself, n1=Health.UNREACHABLE)
    assert [each.load_balancing_weight.value for each in of.endpoints] == weights
    assert scales_itself or shares(of)["10.0.0.2"] == pytest.approx(35 / 40, rel=0.01)


@pytest.mark.parametrize(
    ("third", "expected"), [(Health.SERVING, [DRAINING, UNHEALTHY, HEALTHY]), (Health.UNKNOWN, [UNKNOWN] * 3)]
)
def test_draining_and_absent_endpoints_differ_unless_no_endpoint_serves(third: Health, expected: list[int]):
    assert statuses(assigned(EVERYWHERE, n1=Health.NOT_SERVING, n2=Health.UNREACHABLE, n3=third)) == expected


def test_the_nearest_region_keeps_its_priority_while_none_of_its_endpoints_serves():
    assert priorities(assigned(EVERYWHERE, "west", n2=Health.UNREACHABLE))["west"] == 0


def test_a_drill_drops_its_share_of_the_calls():
    text = 'services: {cache: {endpoints: [{address: "10.0.0.1:1"}], drill: {drop_percent: 12.5}}}'
    (drop,) = assigned(text).policy.drop_overloads
    assert (drop.category, drop.drop_percentage.numerator) == ("drill", 125_000)


def test_an_assignment_keeps_the_rules_that_grpc_checks():
    """Source: https://github.com/grpc/proposal/blob/master/A27-xds-global-load-balancing.md"""
    of: Any = assigned(EVERYWHERE, "south")
    used = sorted(priorities(of).values())
    assert used == list(range(len(used)))
    assert all(each.load_balancing_weight.value for each in of.endpoints)
