"""How long bare gRPC calls take while faults are measured: what the machine alone makes of a call.

An echo server and its caller, `grpc.aio` and nothing else, each in a process of its own, from the beginning of the run
to its end. Where all cores are busy, calls of the mesh are slow for the same reason as these.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

import grpc

from tests.fault.apart import apart
from tests.fault.asking import p99_ms

_QUIET_S = 3.0
_EVERY_S = 0.02
_METHOD = "/bare.Echo/Echo"


class Slowed(NamedTuple):
    """Seconds of each call before something, and of each beside it."""

    before: Sequence[float]
    during: Sequence[float]

    def p99_times(self) -> float:
        """How many times longer the 99th percentile became."""
        return p99_ms(self.during) / p99_ms(self.before)

    def slowest_ms(self) -> float:
        """The slowest call beside it, in milliseconds."""
        return max(self.during) * 1000


@dataclass(frozen=True, slots=True)
class BareCalls:
    """`calls`: when each began, in monotonic seconds, and its seconds. The list grows."""

    calls: Sequence[tuple[float, float]]
    quiet: Sequence[float]  # seconds of those before anything else ran

    def since(self, began: float) -> list[float]:
        """Seconds of each call that began then or later."""
        return [seconds for at, seconds in self.calls if at >= began]

    def slowed(self, began: float) -> Slowed:
        """The calls of the quiet time, and those that began at `began` or later."""
        return Slowed(self.quiet, self.since(began))


@asynccontextmanager
async def bare_calls() -> AsyncIterator[BareCalls]:
    async with apart(_serve, gives_way=False) as addresses, apart(_ask, addresses[0], gives_way=False) as calls:
        await asyncio.sleep(_QUIET_S)
        yield BareCalls(calls, [seconds for _, seconds in calls[10:]])


async def _serve() -> AsyncIterator[str]:
    """The address of the server."""

    async def echo(request: bytes, _: object) -> bytes:
        return request

    methods = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare.Echo", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.wait_for_termination()


async def _ask(address: str) -> AsyncIterator[tuple[float, float]]:
    async with grpc.aio.insecure_channel(address) as channel:
        echo = channel.unary_unary(_METHOD)
        while True:
            began = time.monotonic()
            await echo(b"word")
            yield began, time.monotonic() - began
            await asyncio.sleep(_EVERY_S)
