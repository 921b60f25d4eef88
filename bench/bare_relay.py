"""The floor: a gRPC process that passes a stream on and does nothing else. No parsing, no checks, no other calls.

Its path is written as tightly as gRPC for Python allows (raw bytes, `read` and `write`, uvloop), so that what the
gateway adds to it is the price of the mesh.

    HEDGEROW_BARE_RELAY_TARGET=127.0.0.1:50053 python -m bench.bare_relay
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import grpc
import uvloop
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from hedgerow.channel import open_channel

_SERVICE, _METHOD = "hedgerow.llm.v1.LLMService", "Generate"


async def relay(address: str, target: str) -> None:
    """Serve `Generate` on `address` with the answers of `target` until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with open_channel(target) as channel:
        generate: Any = channel.unary_stream(f"/{_SERVICE}/{_METHOD}")

        async def handle(request: bytes, context: Any) -> None:
            call = generate(request)
            while (message := await call.read()) is not grpc.aio.EOF:
                await context.write(message)

        # Our channels ping every 0.7 s of silence, which gRPC's default takes for abuse.
        pings = ("grpc.http2.min_ping_interval_without_data_ms", 500)
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0), pings, ("grpc.keepalive_permit_without_calls", 1)])
        checks = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)
        await checks.set("", health_pb2.HealthCheckResponse.SERVING)
        handlers: Any = {_METHOD: grpc.unary_stream_rpc_method_handler(handle)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
        server.add_insecure_port(address)
        await server.start()
        await stop.wait()
        await server.stop(0)


if __name__ == "__main__":
    uvloop.run(relay(os.environ["HEDGEROW_BARE_RELAY_ADDRESS"], os.environ["HEDGEROW_BARE_RELAY_TARGET"]))
