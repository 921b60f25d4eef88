"""What gRPC alone costs: a VisionService that looks at nothing. It answers each `Classify` at once with the same bytes.

HEDGEROW_IDLE_VISION_ADDRESS=127.0.0.1:50055 python -m bench.vision.idle
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import grpc
import uvloop
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from hedgerow.vision.v1 import vision_pb2
from services.runtime.process.config import ServiceSettings
from services.runtime.process.serve import server_options

_SERVICE = "hedgerow.vision.v1.VisionService"
_REPLY = vision_pb2.ClassifyResponse(
    results=[vision_pb2.Labels(labels=[vision_pb2.Label(name="red circle", score=0.99)])],
    model="demo-vision",
    timing=vision_pb2.Timing(preprocess_ms=0.5, queue_ms=0.1, compute_ms=0.5, batch_size=1),
).SerializeToString()


async def serve(address: str) -> None:
    """Serve on `address` until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def classify(request: bytes, context: Any) -> bytes:
        return _REPLY

    server = grpc.aio.server(options=server_options(ServiceSettings(address=address)))
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    await checks.set("", health_pb2.HealthCheckResponse.SERVING)
    handlers: Any = {"Classify": grpc.unary_unary_rpc_method_handler(classify)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    server.add_insecure_port(address)
    await server.start()
    await stop.wait()
    await server.stop(0)


if __name__ == "__main__":
    uvloop.run(serve(os.environ["HEDGEROW_IDLE_VISION_ADDRESS"]))
