"""The mesh as operators see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hedgerow.control.v1 import control_pb2 as pb
from services.control.ads import Clients
from services.control.members import Health, ResolvedNames
from services.control.mesh import MeshState
from services.control.servicer import ControlServicer, described
from services.control.snapshot import CLUSTERS, Kind, Renderer
from services.control.topology import Drill
from tests.clock import PausedClock
from tests.unit.control.test_ads import CALL
from tests.unit.control.test_discovery_stream import GrpcClient
from tests.unit.control.topologies import topology

MESH = 'services: {cache: {balance: ring_hash, drill: {drop_percent: 5}, endpoints: [{address: "10.0.0.1:1"}]}}'


@pytest.mark.parametrize(
    ("drill", "words"),
    [
        (Drill(), ""),
        (Drill(delay_ms=200), "100% delayed by 200 ms"),
        (Drill(delay_ms=200, delay_percent=0), ""),
        (Drill(abort="INTERNAL", abort_percent=0.5, drop_percent=5), "0.5% INTERNAL, 5% dropped"),
    ],
)
def test_a_drill_is_described(drill: Drill, words: str):
    assert described(drill) == words


def test_the_numbers_of_health_are_the_contracts():
    for health in Health:
        assert pb.EndpointHealth.Name(health).removeprefix("ENDPOINT_HEALTH_") in (health.name, "UNSPECIFIED")


async def test_a_client_is_shown_with_what_it_was_sent_and_what_it_said():
    clock = PausedClock()
    clients = Clients(clock)
    mesh = MeshState(
        Renderer(topology(MESH), Path("/x")), ResolvedNames(1), lambda *_: None, health_timeout_s=1, clock=clock
    )
    client = GrpcClient()
    client.ask(CLUSTERS, "cache", "other")
    client.stream.node.id, client.stream.node.user_agent_name = "gateway-1", "gRPC C-core"
    servicer = ControlServicer(mesh, clients, "/etc/topology.yaml")
    with clients.connected(client.stream):
        clock.advance(1.5)
        response = client.next_response(mesh.snapshot("", Kind.GRPC))
        assert response
        client.answer(response, refusal="no")
        shown = await servicer.GetMesh(pb.GetMeshRequest(), CALL)
    (one,), (service,) = shown.clients, shown.services
    assert (one.node, one.agent, one.connected_ms) == ("gateway-1", "gRPC C-core", 1_500)
    (subscription,) = one.subscriptions
    assert (list(subscription.names), subscription.refused) == (["cache", "other"], "no")
    assert (subscription.sent_version, subscription.acked_version) == (response.version_info, "")
    assert (service.name, service.balance, service.drill) == ("cache", "ring_hash", "5% dropped")
    assert shown.topology_file == "/etc/topology.yaml"
    assert not (await servicer.GetMesh(pb.GetMeshRequest(), CALL)).clients
