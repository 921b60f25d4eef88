"""`grpc.health.v1` for every caller that can connect: no caller delays another, and watches per host are limited.

In place of grpcio's own (1.85), which writes to a watcher while it holds the lock that all watchers of a service share:
one that reads nothing would keep the control plane's watch silent, and the process from saying that it stops.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.runtime.errors import Exhausted

WATCHES_PER_HOST = 256
_Status = int  # health_pb2.HealthCheckResponse.ServingStatus
_RETRY_S = 1.0


class Health(health_pb2_grpc.HealthServicer):
    """Used on one event loop."""

    def __init__(self) -> None:
        self._status: dict[str, _Status] = {}
        self._changed: set[asyncio.Event] = set()  # one for each watch
        self._watches: Counter[str] = Counter()  # by host
        self._leaving = False

    def set(self, service: str, status: _Status) -> None:
        """Set the status of a service; after `leave`, nothing changes any more."""
        if not self._leaving:
            self._status[service] = status
            self._notify()

    def leave(self) -> None:
        """Set all services to NOT_SERVING, finally."""
        self._status = dict.fromkeys(self._status, health_pb2.HealthCheckResponse.NOT_SERVING)
        self._leaving = True
        self._notify()

    @property
    def serving(self) -> bool:
        """Whether the process as a whole serves."""
        return self._status.get("") == health_pb2.HealthCheckResponse.SERVING

    async def until_serving(self) -> None:
        """Return when the process as a whole serves."""
        with self._listening() as changed:
            while not self.serving:
                changed.clear()
                await changed.wait()

    async def Check(self, request: Any, context: Any) -> Any:
        """The status of a service. NOT_FOUND for an unknown one."""
        status = self._status.get(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(self, request: Any, context: Any) -> None:
        """The status of a service, now and at each change. Raises `Exhausted`."""
        with self._counted(_host(context.peer())), self._listening() as changed:
            sent = None
            while True:
                changed.clear()
                status = self._status.get(request.service, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
                if status != sent:
                    await context.write(health_pb2.HealthCheckResponse(status=status))
                    sent = status
                await changed.wait()

    def _notify(self) -> None:
        for changed in self._changed:
            changed.set()

    @contextmanager
    def _listening(self) -> Iterator[asyncio.Event]:
        self._changed.add(changed := asyncio.Event())
        try:
            yield changed
        finally:
            self._changed.discard(changed)

    @contextmanager
    def _counted(self, host: str) -> Iterator[None]:
        if self._watches[host] >= WATCHES_PER_HOST:
            raise Exhausted(f"health: {WATCHES_PER_HOST} watches from one host, got one more", retry_delay_s=_RETRY_S)
        self._watches[host] += 1
        try:
            yield
        finally:
            self._watches[host] -= 1
            if not self._watches[host]:
                del self._watches[host]


def _host(peer: str) -> str:
    """The host of a peer such as `ipv4:127.0.0.1:50050`, without the port, which differs for each connection."""
    return peer.rpartition(":")[0] if peer.startswith("ip") else peer
