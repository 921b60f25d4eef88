"""A tiny server for tests of the mesh: health, and every other call is answered with the server's own address.

It serves at `ECHO_ADDRESS` until SIGTERM. SIGUSR1 makes it NOT_SERVING, SIGUSR2 SERVING again.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

_SERVING, _NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
_OPTIONS = [("grpc.so_reuseport", 0), ("grpc.http2.min_ping_interval_without_data_ms", 500)]


class Echo(grpc.GenericRpcHandler):
    """Any unary call but those to health."""

    def __init__(self, address: str):
        self._address = address.encode()

    def service(self, handler_call_details: Any) -> Any:
        if handler_call_details.method.startswith("/grpc.health.v1."):
            return None
        return grpc.unary_unary_rpc_method_handler(self._answer)

    async def _answer(self, request: bytes, context: Any) -> bytes:
        return self._address


async def main(address: str) -> None:
    stop, checks = asyncio.Event(), health.aio.HealthServicer()
    _obey_signals(stop, checks)
    server = grpc.aio.server(options=_OPTIONS)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    server.add_generic_rpc_handlers((Echo(address),))
    server.add_insecure_port(address)
    await server.start()
    await checks.set("", _SERVING)
    await stop.wait()
    await server.stop(0)


def _obey_signals(stop: asyncio.Event, checks: health.aio.HealthServicer) -> None:
    loop, setting = asyncio.get_running_loop(), set[asyncio.Task[None]]()  # a task without a reference may be collected

    def say(status: Any) -> None:
        task = loop.create_task(checks.set("", status))
        setting.add(task)
        task.add_done_callback(setting.discard)

    loop.add_signal_handler(signal.SIGUSR1, say, _NOT_SERVING)
    loop.add_signal_handler(signal.SIGUSR2, say, _SERVING)
    loop.add_signal_handler(signal.SIGTERM, stop.set)


if __name__ == "__main__":
    asyncio.run(main(os.environ["ECHO_ADDRESS"]))
