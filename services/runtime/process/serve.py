"""One service process, from its first log line to its exit code.

The server listens at once; health says NOT_SERVING and calls get UNAVAILABLE until the service is assembled (its
engine loaded and warm). One that depends on others may be ready later than that (`Assembled`). On SIGTERM or SIGINT
health says NOT_SERVING first, and for `lame_duck_ms` calls are still taken from callers that have not noticed. Then
a servicer with a `drain` method ends its endless streams, calls in flight get
the rest of `grace_ms` to finish, the service is taken apart in reverse order and the process exits with 0. Servers
other than gRPC's do the same (`ExtraServer`).

With `tls_dir`, callers authenticate, and `authorization.py` has the permitted callers. API keys are separate:
health asks for none, because probes carry none. Reflection says as much as the contract, so it asks like the
service: every servicer that has an `authorize(metadata, identity)` method, which raises for a caller it does not know.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, Protocol

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2

from hedgerow.identities import SERVICES
from services.runtime.process import metrics, workers
from services.runtime.process.config import ServiceSettings, load
from services.runtime.process.health import Health
from services.runtime.process.lifetime import allow_many_connections, keep_to_oneself, lifetime, to_the_end
from services.runtime.process.logs import log_what_ends_us, setup_logging
from services.runtime.process.loop_watch.watch import watching
from services.runtime.process.server import listen, make_server, set_health
from services.runtime.rpc import boundary
from services.runtime.security import tls


class ExtraServer(Protocol):
    """Another way to the servicers than gRPC's. Open when it is handed over."""

    def leave(self) -> None:
        """Report that this process is about to stop; requests are still taken."""

    async def stop(self, grace_s: float) -> None:
        """Take no more requests, and return when those in flight have ended: after `grace_s` at the latest."""


class Assembled(dict[ServiceDescriptor, boundary.Servicer]):
    """The servicers, and the `extra_servers` in front of them. Health says SERVING once `ready` has returned; calls are
    served before that, too. Without `ready` health says it at once. Afterwards `follow_health`, which never returns,
    says the health of the services, but not that of the process."""

    def __init__(
        self,
        servicers: Mapping[ServiceDescriptor, boundary.Servicer],
        extra_servers: Sequence[ExtraServer] = (),
        ready: Callable[[], Awaitable[None]] | None = None,
        follow_health: Callable[[Callable[[int], None]], Awaitable[None]] | None = None,
    ):
        super().__init__(servicers)
        self.extra_servers, self.ready, self.follow_health = extra_servers, ready, follow_health


Assemble = Callable[..., AbstractAsyncContextManager[Mapping[ServiceDescriptor, boundary.Servicer]]]


class Service(NamedTuple):
    """The definition of a service: `main(*service)` runs it alone, `together.main` with others."""

    name: str
    settings: type[ServiceSettings]
    descriptors: Sequence[ServiceDescriptor]
    assemble: Assemble


_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOTIFY_S = 0.1  # for watchers of health to be notified before their stream ends
_log = logging.getLogger(__name__)


def main(name: str, cls: type[ServiceSettings], descriptors: Sequence[ServiceDescriptor], assemble: Assemble) -> None:
    """Run a service: `assemble(settings)` yields its servicers once they are ready to serve."""
    keep_to_oneself()
    allow_many_connections()
    settings = load(cls, sys.argv[1:], prog=f"python -m services.{name}")
    setup_logging(name, settings.log_level)
    log_what_ends_us()
    if settings.processes > 1:
        given = {"name": name, "service": name, "environment": {}, "arguments": sys.argv[1:]}
        sys.exit(workers.main(given, settings))
    to_the_end(run(name, settings, descriptors, assemble))


async def run(
    name: str, settings: ServiceSettings, descriptors: Sequence[ServiceDescriptor], assemble: Assemble
) -> bool:
    """`main` without the process: serves until the process must stop. Returns whether it came to serve."""
    servicers: dict[str, boundary.Servicer] = {}
    async with lifetime(name, settings, lambda: bool(servicers)) as stop:
        await serve_until(stop, settings, descriptors, assemble, servicers)
    return bool(servicers)


async def serve_until(
    stop: asyncio.Event,
    settings: ServiceSettings,
    descriptors: Sequence[ServiceDescriptor],
    assemble: Assemble,
    servicers: dict[str, boundary.Servicer],
    checks: Health | None = None,
    *extra_servers: ExtraServer,
) -> None:
    """Run a service, from its open port to its end, which begins when `stop` is set. `servicers` are filled once it is
    assembled. Other services may run in the same process: nothing here is the process's own."""
    ended, names = asyncio.Event(), [descriptor.full_name for descriptor in descriptors]
    async with _own(settings) as folder:
        server, checks = make_server(settings, descriptors, servicers, ended, folder, checks)
        async with _open(server, settings, checks, folder), assemble(settings) as assembled:
            servicers.update({descriptor.full_name: servicer for descriptor, servicer in assembled.items()})
            gc.collect()
            gc.freeze()  # these objects stay: to look at them in each collection would only cost the tail
            if settings.overlaps:
                await listen(server, settings.address, folder)
            ready = asyncio.create_task(_say_ready(assembled, checks, names))
            try:
                with watching(settings.blocked_loop_ms):
                    await stop.wait()
                    await _drain(settings, assembled, server, checks, ended, extra_servers)
            finally:
                ready.cancel()


@asynccontextmanager
async def _open(
    server: grpc.aio.Server, settings: ServiceSettings, checks: Health, folder: tls.Folder | None
) -> AsyncIterator[None]:
    """Inside, metrics are served, and the server listens, unless it overlaps another. Both have stopped afterwards."""
    if not settings.overlaps:
        await listen(server, settings.address, folder)
    pages = metrics.ProbePages(checks, asyncio.get_running_loop())
    stop_metrics = metrics.serve(settings.metrics_address, pages) if settings.metrics_address else None
    try:
        yield
    finally:
        await server.stop(0)
        if stop_metrics:
            stop_metrics()


@asynccontextmanager
async def _own(settings: ServiceSettings) -> AsyncIterator[tls.Folder | None]:
    """The process's own credentials, which are followed inside; None in plain text. Ends the process with 2 when they
    cannot be used."""
    try:
        folder = tls.Folder(settings.tls_dir) if settings.tls_dir else None
        if folder and folder.current.identity not in SERVICES:
            raise tls.BadTls(
                f"tls_dir: {folder.path}: a service's certificate, got {folder.current.identity or 'none'}"
            )
    except tls.BadTls as error:
        _log.error("%s", error)
        raise SystemExit(2) from None
    following = asyncio.create_task(folder.follow()) if folder else None
    try:
        yield folder
    finally:
        if following:
            following.cancel()
            await asyncio.wait({following})


async def _say_ready(
    assembled: Mapping[ServiceDescriptor, boundary.Servicer], checks: Health, names: Sequence[str]
) -> None:
    """Have health say SERVING, once the service is ready where it has a say in that; calls are served before."""
    if isinstance(assembled, Assembled) and assembled.ready:
        await assembled.ready()
    set_health(checks, names, _SERVING)
    _log.info("serving")

    def say(status: int) -> None:
        for name in names:
            checks.set(name, status)

    if isinstance(assembled, Assembled) and assembled.follow_health:
        await assembled.follow_health(say)


async def _drain(
    settings: ServiceSettings,
    assembled: Mapping[ServiceDescriptor, boundary.Servicer],
    server: grpc.aio.Server,
    checks: Health,
    ended: asyncio.Event,
    others: Sequence[ExtraServer],
) -> None:
    """Say that the process stops, and return when the calls in flight have ended: after the grace at the latest."""
    _log.info("stopping: up to %d ms for calls in flight", settings.grace_ms)
    extra_servers: Sequence[ExtraServer] = (*getattr(assembled, "extra_servers", ()), *others)
    checks.leave()
    for extra in extra_servers:
        extra.leave()
    lame_duck_ms = min(settings.lame_duck_ms, settings.grace_ms)
    await asyncio.sleep(lame_duck_ms / 1000)
    for servicer in assembled.values():
        if hasattr(servicer, "drain"):
            servicer.drain()
    asyncio.get_running_loop().call_later(_NOTIFY_S, ended.set)
    drain_s = settings.drain_ms / 1000
    await asyncio.gather(server.stop(drain_s), *(extra.stop(drain_s) for extra in extra_servers))
