"""A container's health check: `python -m services.runtime.probe 127.0.0.1:50050` exits with 0 when the service serves.

It asks `grpc.health.v1`, so an engine that still loads, or a service that drains, counts as not healthy.
"""

from __future__ import annotations

import sys
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc


def main(address: str, timeout_s: float = 2.0) -> int:
    """Print what the service at `address` says of itself; 0 for SERVING, else 1."""
    with grpc.insecure_channel(address) as channel:
        status = ask(channel, timeout_s)
    print(status)
    return 0 if status == "SERVING" else 1


def ask(channel: grpc.Channel, timeout_s: float) -> str:
    """SERVING, NOT_SERVING, … or, when nothing answers, the gRPC status code's name."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    try:
        reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
    except grpc.RpcError as error:
        return str(error.code().name)
    return health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
