"""The contract of the control plane, over the mesh and its clients."""

from __future__ import annotations

from hedgerow.control.v1 import control_pb2 as pb
from services.control.ads import Clients, XdsSubscriber
from services.control.discovery_stream import Subscription
from services.control.members import Seen
from services.control.mesh import MeshState
from services.control.topology import Drill
from services.runtime.rpc.boundary import Call


class ControlServicer:
    """Serves `hedgerow.control.v1.ControlService`."""

    def __init__(self, mesh: MeshState, clients: Clients, file: str):
        self._mesh, self._clients, self._file = mesh, clients, file

    async def GetMesh(self, request: pb.GetMeshRequest, call: Call) -> pb.GetMeshResponse:
        now = self._clients.clock()
        return pb.GetMeshResponse(
            version=self._mesh.version,
            topology_file=self._file,
            topology_problem=self._mesh.problem,
            services=[self._service(name, now) for name in self._mesh.topology.services],
            clients=[_client(each, now) for each in self._clients],
        )

    def _service(self, name: str, now: float) -> pb.Service:
        service = self._mesh.topology.services[name]
        return pb.Service(
            name=name,
            balance=service.balance,
            endpoints=[self._endpoint(name, each, now) for each in self._mesh.seen(name)],
            drill=described(service.drill) if service.drill else "",
        )

    def _endpoint(self, service: str, seen: Seen, now: float) -> pb.Endpoint:
        member, report = seen.member, self._mesh.report(service, seen.member)
        return pb.Endpoint(
            address=member.address,
            region=member.region,
            zone=member.zone,
            build=member.build,
            weight=member.weight,
            health=pb.EndpointHealth.Name(report.health),
            health_ms=round((now - report.since) * 1000),
            in_service=seen.in_service,
        )


def described(drill: Drill) -> str:
    """A drill for people: `30% delayed by 200 ms, 10% UNAVAILABLE, 5% dropped`."""
    parts = {
        f"{drill.delay_percent:g}% delayed by {drill.delay_ms} ms": drill.delay_ms and drill.delay_percent,
        f"{drill.abort_percent:g}% {drill.abort}": drill.abort_percent,
        f"{drill.drop_percent:g}% dropped": drill.drop_percent,
    }
    return ", ".join(part for part, on in parts.items() if on)


def _client(client: XdsSubscriber, now: float) -> pb.Client:
    return pb.Client(
        node=client.node.id,
        agent=client.node.user_agent_name,
        region=client.region,
        connected_ms=round((now - client.since) * 1000),
        subscriptions=map(_subscription, client.stream.subscriptions()),
    )


def _subscription(of: Subscription) -> pb.Subscription:
    return pb.Subscription(
        type_url=of.type_url,
        names=[] if of.wildcard else sorted(of.names),
        sent_version=of.sent_version,
        acked_version=of.acked_version,
        refused=of.problem,
    )
