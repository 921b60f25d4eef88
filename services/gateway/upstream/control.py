"""The control plane, as the gateway calls it. With `discovery.py`, which is imported where an address asks for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import grpc
from envoy.service.discovery.v3 import discovery_pb2

from services.gateway.upstream.stubs import both_ways


class Control:
    """The control plane."""

    def __init__(self, channel: grpc.aio.Channel):
        self._discover = channel.stream_stream(
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
            request_serializer=discovery_pb2.DiscoveryRequest.SerializeToString,
            response_deserializer=discovery_pb2.DiscoveryResponse.FromString,
        )

    def discover(
        self, requests: AsyncGenerator[discovery_pb2.DiscoveryRequest, None]
    ) -> AsyncGenerator[discovery_pb2.DiscoveryResponse, None]:
        """Resources as they change; waits for the control plane, ends with `ServiceError` when it goes."""
        return both_ways(self._discover(wait_for_ready=True), requests, "control")
