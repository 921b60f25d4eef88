"""A scripted service process: serves `grpc.health.v1` and nothing else, and ends as its environment says.

`SCRIPTED_ADDRESS` is where it serves, `SCRIPTED_EXIT_CODE` ends it at once with that code.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc


async def main() -> None:
    if code := os.environ.get("SCRIPTED_EXIT_CODE"):
        sys.exit(f"scripted to fail with {code}")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server, checks = grpc.aio.server(options=[("grpc.so_reuseport", 0)]), health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    server.add_insecure_port(os.environ["SCRIPTED_ADDRESS"])
    await server.start()
    await checks.set("", health_pb2.HealthCheckResponse.SERVING)
    print("scripted service serving", flush=True)
    await stop.wait()
    await server.stop(0)


if __name__ == "__main__":
    asyncio.run(main())
