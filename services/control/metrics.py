"""The control plane's counts for Prometheus."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

SNAPSHOTS = Counter("hedgerow_control_snapshots", "Snapshots for clients.")
CLIENTS = Gauge("hedgerow_control_clients", "Clients connected over xDS: grpc, envoy.", ["kind"])
PUSHES = Counter("hedgerow_control_pushes", "Responses sent to clients, by type of resource.", ["type"])
REFUSED = Counter("hedgerow_control_refused", "Responses that clients refused (NACK), by type of resource.", ["type"])
ENDPOINTS = Gauge(
    "hedgerow_control_endpoints", "Endpoints by health: unknown, serving, not_serving, "
    "unreachable.", ["service", "health"],
)  # fmt: skip
TOPOLOGY_REFUSED = Gauge(
    "hedgerow_control_topology_refused", "1 while the topology's file cannot be used and the last good one is in force."
)
LOOKUPS_FAILED = Counter("hedgerow_control_lookups_failed", "Names of endpoints that could not be looked up.")
