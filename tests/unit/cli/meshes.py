"""Replies of a control plane about a mesh."""

from __future__ import annotations

from hedgerow.control.v1 import control_pb2 as pb

EDS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
CDS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"


def a_mesh() -> pb.GetMeshResponse:
    """One service of two endpoints, a gateway that has taken everything, and Envoy: all is well."""
    endpoints = [
        pb.Endpoint(address=address, weight=1, health=pb.ENDPOINT_HEALTH_SERVING, health_ms=ms, in_service=True)
        for address, ms in (("127.0.0.1:7011", 12_300), ("127.0.0.1:7012", 90_000))
    ]
    took = pb.Subscription(type_url=EDS, names=["cache"], sent_version="aaaaaaaaaaaa", acked_version="aaaaaaaaaaaa")
    took_all = pb.Subscription(type_url=CDS, sent_version="bbbbbbbbbbbb", acked_version="bbbbbbbbbbbb")
    return pb.GetMeshResponse(
        version="0123456789ab",
        topology_file="/mesh/topology.yaml",
        services=[pb.Service(name="cache", balance="ring_hash", endpoints=endpoints)],
        clients=[
            pb.Client(
                node="gateway-1", agent="gRPC C-core linux Python", region="local", connected_ms=250,
                subscriptions=[took],
            ),
            pb.Client(node="envoy", agent="envoy", region="local", connected_ms=7_300_000, subscriptions=[took_all]),
        ],
    )  # fmt: skip
