import json
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import grpc
import pytest
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import any_pb2, json_format

from services.gateway.upstream.assignment import AssignedDrill, Assignment
from services.gateway.upstream.balance import Locality
from services.gateway.upstream.discovery import BadAssignment, BadBootstrap, Discovery, bootstrap, read_assignment


def endpoint(address: str, health: str = "HEALTHY", weight: int = 1) -> dict:
    host, _, port = address.rpartition(":")
    socket = {"address": host, "portValue": int(port)}
    return {"endpoint": {"address": {"socketAddress": socket}}, "healthStatus": health, "loadBalancingWeight": weight}


def locality(*endpoints: dict, priority: int = 0, weight: int = 1, build: str = "") -> dict:
    return {
        "locality": {"subZone": build},
        "priority": priority,
        "loadBalancingWeight": weight,
        "lbEndpoints": list(endpoints),
    }


def assignment(*localities: dict, name: str = "llm", **more: object) -> endpoint_pb2.ClusterLoadAssignment:
    given = {"clusterName": name, "endpoints": list(localities), **more}
    return json_format.ParseDict(given, endpoint_pb2.ClusterLoadAssignment())


def test_replicas_come_with_priority_build_and_weight():
    given = assignment(
        locality(endpoint("10.0.0.1:1"), endpoint("10.0.0.2:1"), weight=95),
        locality(endpoint("10.0.0.3:1"), weight=5, build="canary"),
        locality(endpoint("::1:7"), priority=1),
    )
    name, assigned = read_assignment(given)
    assert name == "llm"
    assert assigned.replicas == {
        "10.0.0.1:1": Locality(0, "", 47.5),
        "10.0.0.2:1": Locality(0, "", 47.5),
        "10.0.0.3:1": Locality(0, "canary", 5),
        "[::1]:7": Locality(1, "", 1),
    }


def test_only_those_in_service_are_taken():
    states = ["HEALTHY", "UNKNOWN", "UNHEALTHY", "DRAINING", "TIMEOUT", "DEGRADED"]
    given = assignment(locality(*(endpoint(f"10.0.0.{number}:1", state) for number, state in enumerate(states))))
    assert [*read_assignment(given)[1].replicas] == ["10.0.0.0:1", "10.0.0.1:1"]


def test_a_drill_says_which_share_of_the_calls_to_drop():
    drop = {"category": "drill", "dropPercentage": {"numerator": 25, "denominator": "HUNDRED"}}
    assert read_assignment(assignment(policy={"dropOverloads": [drop]}))[1].drop_share == pytest.approx(0.25)


def test_an_address_that_comes_twice_is_refused():
    with pytest.raises(BadAssignment, match=r"10\.0\.0\.1:1 twice"):
        read_assignment(assignment(locality(endpoint("10.0.0.1:1")), locality(endpoint("10.0.0.1:1"))))


def test_the_bootstrap_is_grpcs_own(tmp_path):
    given = {"xds_servers": [{"server_uri": "10.0.0.9:50060"}], "node": {"id": "gw", "locality": {"region": "west"}}}
    (tmp_path / "bootstrap.json").write_text(json.dumps(given))
    for environ in (
        {"GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps(given)},
        {"GRPC_XDS_BOOTSTRAP": str(tmp_path / "bootstrap.json")},
    ):
        found = bootstrap(environ)
        assert (found.control, found.node.id, found.node.locality.region) == ("10.0.0.9:50060", "gw", "west")


@pytest.mark.parametrize("given", ["{", "[]", "{}", '{"xds_servers": []}', '{"xds_servers": [{}]}', None])
def test_a_bootstrap_that_cannot_be_used_is_refused(given: str | None):
    with pytest.raises(BadBootstrap, match="GRPC_XDS_BOOTSTRAP_CONFIG" if given is None else "xDS bootstrap"):
        bootstrap({} if given is None else {"GRPC_XDS_BOOTSTRAP_CONFIG": given})


class ScriptedControl:
    """Sends `responses`, each when everything before it has been answered."""

    def __init__(self, *responses: discovery_pb2.DiscoveryResponse):
        self.responses, self.requests = responses, []

    async def discover(
        self, requests: AsyncGenerator[discovery_pb2.DiscoveryRequest, None]
    ) -> AsyncIterator[discovery_pb2.DiscoveryResponse]:
        async with aclosing(requests):
            for _ in (ASSIGNMENTS, ROUTES):
                self.requests.append(await anext(requests))
            for response in self.responses:
                yield response
                self.requests.append(await anext(requests))


def response(version: str, *resources: object, type_url: str = "") -> discovery_pb2.DiscoveryResponse:
    packed = []
    for resource in resources:
        packed.append(any_pb2.Any())
        packed[-1].Pack(resource)
    type_url = type_url or packed[0].type_url
    return discovery_pb2.DiscoveryResponse(
        version_info=version, nonce=f"n{version}", resources=packed, type_url=type_url
    )


class Taken:
    """A watcher that records its notifications."""

    def __init__(self):
        self.assignments, self.drills = [], []
        self.take, self.drill = self.assignments.append, self.drills.append


async def follow(*responses: discovery_pb2.DiscoveryResponse):
    control, taken = ScriptedControl(*responses), Taken()
    discovery = Discovery(control, bootstrap({"GRPC_XDS_BOOTSTRAP_CONFIG": BOOTSTRAP}).node, {"llm": taken})
    await discovery.follow()
    return control.requests, taken, discovery


BOOTSTRAP = json.dumps({"xds_servers": [{"server_uri": "x:1"}], "node": {"id": "gw"}})
ASSIGNMENTS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
ROUTES = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"


async def test_the_first_requests_name_node_and_resources():
    requests, _, discovery = await follow()
    assert [each.type_url for each in requests] == [ASSIGNMENTS, ROUTES]
    for each in requests:
        assert (each.node.id, each.node.user_agent_name, list(each.resource_names)) == (
            "gw",
            "hedgerow gateway",
            ["llm"],
        )
    assert not await discovery.arrived(0)


async def test_an_assignment_is_put_in_force_and_acknowledged():
    given = assignment(locality(endpoint("10.0.0.1:1")))
    requests, taken, discovery = await follow(response("1", given))
    assert taken.assignments == [Assignment({"10.0.0.1:1": Locality(0, "", 1)})]
    assert (requests[-1].version_info, requests[-1].response_nonce) == ("1", "n1")
    assert requests[-1].type_url == ASSIGNMENTS
    assert not requests[-1].HasField("error_detail")
    assert await discovery.arrived(0)


async def test_a_bad_assignment_is_refused_by_name_and_the_last_good_one_stays():
    good, bad = assignment(locality(endpoint("10.0.0.1:1"))), assignment(locality(endpoint("10.0.0.1:0")))
    requests, taken, _ = await follow(response("1", good), response("2", bad))
    assert len(taken.assignments) == 1
    assert (requests[-1].version_info, requests[-1].response_nonce) == ("1", "n2")
    assert "socket_address" in requests[-1].error_detail.message


async def test_a_resource_of_another_type_is_refused():
    requests, taken, _ = await follow(response("1", discovery_pb2.DiscoveryRequest(), type_url=ASSIGNMENTS))
    assert not taken.assignments
    assert "ClusterLoadAssignment" in requests[-1].error_detail.message
    assert requests[-1].version_info == ""


async def test_assignments_of_others_are_passed_over():
    _, taken, _ = await follow(response("1", assignment(name="cache")))
    assert not taken.assignments


def route(**fault: object) -> route_pb2.RouteConfiguration:
    filters = {}
    if fault:
        packed = any_pb2.Any()
        packed.Pack(json_format.ParseDict(fault, fault_pb2.HTTPFault()))
        filters = {"envoy.filters.http.fault": packed}
    host = route_components_pb2.VirtualHost(name="llm", domains=["*"], typed_per_filter_config=filters)
    return route_pb2.RouteConfiguration(name="llm", virtual_hosts=[host])


async def test_a_drill_is_read_from_the_route_and_ends_with_it():
    delay = {"fixedDelay": "0.5s", "percentage": {"numerator": 10}}
    abort = {"grpcStatus": 8, "percentage": {"numerator": 250_000, "denominator": "MILLION"}}
    requests, taken, _ = await follow(response("1", route(delay=delay, abort=abort)), response("2", route()))
    assert taken.drills == [AssignedDrill(0.5, 0.1, grpc.StatusCode.RESOURCE_EXHAUSTED, 0.25), taken.drills[1]]
    assert taken.drills[1].fault(random.Random(0)) is None
    assert (requests[-1].type_url, requests[-1].version_info) == (ROUTES, "2")


def test_a_drill_takes_its_share_of_the_calls():
    rng, drill = random.Random(1), AssignedDrill(0.5, 0.1, grpc.StatusCode.UNAVAILABLE, 0.2)
    faults = [fault for _ in range(10_000) if (fault := drill.fault(rng))]
    assert 800 < sum(fault.delay_s == 0.5 for fault in faults) < 1_200
    assert 1_700 < sum(fault.code is grpc.StatusCode.UNAVAILABLE for fault in faults) < 2_300
