"""The health of endpoints: `grpc.health.v1`, watched on a channel to each.

A watch reports a change at once; pings on its connection (`hedgerow.channel`) detect a dead or frozen peer within two
seconds. A service without Watch is polled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.control.members import Health
from services.runtime.deadline import Clock
from services.runtime.security.tls import Dial

_AGAIN_S = 0.2  # pause after the end of a watch, or after a Check
_REQUEST = health_pb2.HealthCheckRequest()  # for the process as a whole
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The health of an endpoint, and the time of its last change (seconds, monotonic)."""

    health: Health
    since: float


Key = tuple[str, str]  # service, address


class Watches:
    """One watch for each endpoint of each service. Run inside a task group that outlives it."""

    def __init__(self, dial: Dial, timeout_s: float, on_change: Callable[[], None], clock: Clock):
        self._dial, self._timeout_s, self._on_change, self._clock = dial, timeout_s, on_change, clock
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._identities: dict[Key, str] = {}
        self._reports: dict[Key, HealthReport] = {}

    def report(self, service: str, address: str) -> HealthReport:
        """The last known health of an endpoint."""
        return self._reports.get((service, address)) or HealthReport(Health.UNKNOWN, self._clock())

    def complete(self) -> bool:
        """Whether the health of every endpoint is known: it answered, or timed out."""
        return all(self._reports[key].health is not Health.UNKNOWN for key in self._tasks)

    def follow(self, identities: Mapping[Key, str], group: asyncio.TaskGroup) -> None:
        """Watch exactly these endpoints, whose certificates must have the identities in `identities`."""
        for key, identity in self._identities.items():
            if identities.get(key) != identity:
                self._tasks.pop(key).cancel()
                self._reports.pop(key, None)
        self._identities = dict(identities)
        for key in identities.keys() - self._tasks.keys():
            self._reports[key] = HealthReport(Health.UNKNOWN, self._clock())
            self._tasks[key] = group.create_task(self._watch(key, identities[key]))

    async def _watch(self, key: Key, identity: str) -> None:
        _, address = key
        while True:
            try:
                async with self._dial(address, identity) as channel:
                    await self._listen(key, watch_health(channel, self._timeout_s))
            except Exception:  # a bug about one endpoint must not end the watches of all others
                _log.exception("%s at %s: its health cannot be watched", *key)
            self._take(key, Health.UNREACHABLE)
            await asyncio.sleep(self._timeout_s)

    async def _listen(self, key: Key, statuses: AsyncGenerator[Health, None]) -> None:
        async with aclosing(statuses):
            async for health in statuses:
                self._take(key, health)

    def _take(self, key: Key, health: Health) -> None:
        before = self._reports[key]
        if before.health is health:
            return
        self._reports[key] = HealthReport(health, self._clock())
        gone = (before.health, health) == (Health.SERVING, Health.UNREACHABLE)  # without a status NOT_SERVING before
        level = logging.WARNING if gone else logging.INFO
        _log.log(level, "%s at %s: %s (was %s)", *key, health.name, before.health.name)
        self._on_change()


async def watch_health(channel: grpc.aio.Channel, timeout_s: float) -> AsyncGenerator[Health, None]:
    """The peer's health, for ever: at once, and at each possible change. No first status of a watch within `timeout_s`
    counts as UNREACHABLE."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    waits = False  # report a refused connection at once the first time; later wait for the next connection
    while True:
        call = stub.Watch(_REQUEST, wait_for_ready=waits)
        try:
            async with aclosing(_statuses(call, timeout_s)) as statuses:
                async for health in statuses:
                    yield health
            ended = grpc.StatusCode.OK
        except grpc.aio.AioRpcError as error:
            ended = error.code()
        except TimeoutError:
            ended = grpc.StatusCode.DEADLINE_EXCEEDED
        finally:
            call.cancel()
        if ended is grpc.StatusCode.UNIMPLEMENTED:
            yield await _check(stub, timeout_s)
        elif ended is not grpc.StatusCode.OK:
            yield Health.UNREACHABLE
        waits = True
        await asyncio.sleep(_AGAIN_S)


async def _statuses(call: Any, timeout_s: float) -> AsyncGenerator[Health, None]:
    """The statuses of one watch, until it ends."""
    async with asyncio.timeout(timeout_s):
        reply = await call.read()
    while reply is not grpc.aio.EOF:
        yield _health(reply)
        reply = await call.read()


async def _check(stub: Any, timeout_s: float) -> Health:
    """The health of a peer without Watch. A peer without any health service counts as SERVING if it answers."""
    try:
        return _health(await stub.Check(_REQUEST, timeout=timeout_s))
    except grpc.aio.AioRpcError as error:
        return Health.SERVING if error.code() is grpc.StatusCode.UNIMPLEMENTED else Health.UNREACHABLE


def _health(reply: health_pb2.HealthCheckResponse) -> Health:
    return Health.SERVING if reply.status == health_pb2.HealthCheckResponse.SERVING else Health.NOT_SERVING
