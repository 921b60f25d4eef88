"""One service process, from its first log line to its exit code.

The server listens at once; health says NOT_SERVING and calls get UNAVAILABLE until the service is assembled (its
engine loaded and warm). One that depends on others may be ready later than that (`Assembled`). On SIGTERM or SIGINT
health says NOT_SERVING first, and for `lame_duck_ms` calls are still taken from those who have not heard of it. Then a
servicer that has a `drain` method is told to end the streams that would never end by themselves, calls in flight get
the rest of `grace_ms` to finish, the service is taken apart in reverse order and the process exits with 0. What is
served by other means than gRPC does the same (`Door`).

With `tls_dir`, callers prove who they are, and `authorization.py` says who may call whom. API keys are another matter:
health asks for none, because probes carry none. Reflection says as much as the contract, so it asks whom the service
asks: every servicer that has an `authorize(metadata, identity)` method, which raises for a caller it does not know.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import grpc
import uvloop
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection

from hedgerow.channel import ping_timeout_ms, ping_timeout_options
from hedgerow.identities import SERVICES
from services.runtime import telemetry
from services.runtime.errors import Starting
from services.runtime.process import metrics, workers
from services.runtime.process.assembled import Assembled, Door
from services.runtime.process.config import ServiceSettings, load
from services.runtime.process.health import Health
from services.runtime.process.logs import log_what_ends_us, setup_logging
from services.runtime.process.loop_watch.watch import watching
from services.runtime.process.private import keep_to_oneself
from services.runtime.process.probe_pages import ProbePages
from services.runtime.process.workers import Worker
from services.runtime.rpc import arrival, boundary, first_message, wrapped
from services.runtime.rpc.authorization import anyone, callers_of, probes_of
from services.runtime.security import tls

Assemble = Callable[..., AbstractAsyncContextManager[Mapping[ServiceDescriptor, boundary.Servicer]]]


_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_HEALTH = descriptor_pool.Default().FindServiceByName("grpc.health.v1.Health")
_REFLECTION = descriptor_pool.Default().FindServiceByName(reflection.SERVICE_NAME)
_STOPS = (signal.SIGTERM, signal.SIGINT)
_TOLD_S = 0.1  # for those who watch health to be told before their stream ends
_log = logging.getLogger(__name__)


def main(name: str, cls: type[ServiceSettings], descriptors: Sequence[ServiceDescriptor], assemble: Assemble) -> None:
    """Run a service: `assemble(settings)` yields its servicers once they are ready to serve."""
    keep_to_oneself()
    settings = load(cls, sys.argv[1:], prog=f"python -m services.{name}")
    worker = Worker.current()
    setup_logging(f"{name}/{worker.number}" if worker else name, settings.log_level)
    log_what_ends_us()
    if worker:
        settings = worker.own(settings)
        worker.end_with_parent(settings.grace_ms / 1000)
    elif settings.processes > 1:
        sys.exit(workers.main(name, settings, sys.argv[1:]))
    # Held to the end: gRPC's engine ends with the last of its objects, and waits for ever where a call is stuck in it
    # (https://github.com/grpc/grpc/issues/22365).
    grpc.aio.init_grpc_aio()
    try:
        uvloop.run(_run(name, settings, descriptors, assemble))
    finally:
        for number in _STOPS:
            signal.signal(number, signal.SIG_IGN)  # whoever says it again would make a failure of a good end


async def _run(
    name: str, settings: ServiceSettings, descriptors: Sequence[ServiceDescriptor], assemble: Assemble
) -> None:
    """`run`, and the end of the process where it never served: what loads does so in a thread, which may take minutes
    more, and Python would wait for it."""
    if not await run(name, settings, descriptors, assemble):
        atexit._run_exitfuncs()
        os._exit(0)


async def run(
    name: str, settings: ServiceSettings, descriptors: Sequence[ServiceDescriptor], assemble: Assemble
) -> bool:
    """`main` without the process: serves until the process is told to stop. Returns whether it came to serve."""
    stop, task = asyncio.Event(), asyncio.current_task()
    servicers: dict[str, boundary.Servicer] = {}

    def on_signal() -> None:
        if not (servicers or stop.is_set()) and task:  # still assembling: nothing to drain
            task.cancel()  # once: what it clears up then is not to be cut short
        stop.set()

    for number in _STOPS:
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    sampler = telemetry.sampler(settings.trace_ratio, trusting=settings.trust_traceparent)
    telemetry.setup(name, settings.otlp_endpoint.get_secret_value(), sampler)
    ended = asyncio.Event()
    try:
        async with _own(settings) as folder:
            server, checks = await start_server(settings, descriptors, servicers, ended, folder)
            pages = ProbePages(checks, asyncio.get_running_loop())
            stop_metrics = metrics.serve(settings.metrics_address, pages) if settings.metrics_address else None
            try:
                await _serve_until(stop, settings, descriptors, assemble, servicers, server, checks, ended)
            finally:
                await server.stop(0)
                if stop_metrics:
                    stop_metrics()
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
    finally:
        await asyncio.to_thread(telemetry.shutdown)
        _log.info("stopped")
    return bool(servicers)


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


async def start_server(
    settings: ServiceSettings,
    descriptors: Sequence[ServiceDescriptor],
    servicers: Mapping[str, boundary.Servicer],
    ended: asyncio.Event,
    folder: tls.Folder | None = None,
) -> tuple[grpc.aio.Server, Health]:
    """A listening server with health (NOT_SERVING), reflection and handlers for `descriptors`. Watches of health end
    when `ended` is set. With a `folder`, it serves those who may call the service that its certificate is for; without,
    anyone in plain text."""
    own = folder.current.identity if folder else ""
    admit, admit_probe = (callers_of(own), probes_of(own)) if folder else (anyone, anyone)
    server = grpc.aio.server(options=server_options(settings))
    checks = Health()
    names = [descriptor.full_name for descriptor in descriptors]
    _set_health(checks, names, _NOT_SERVING)
    own_ms = settings.first_message_ms
    within_ms = own_ms or first_message.DEFAULT_MS  # of what anybody may ask of any service
    listed = reflection.aio.ReflectionServicer([*names, _HEALTH.full_name, _REFLECTION.full_name])
    server.add_generic_rpc_handlers(
        (
            *(boundary.handlers(descriptor, servicers, admit, own_ms) for descriptor in descriptors),
            wrapped.handlers(_HEALTH, checks, ended, admit=admit_probe, first_message_ms=within_ms),
            wrapped.handlers(_REFLECTION, listed, ended, partial(_authorize, servicers), admit, within_ms),
        )
    )
    port = _bind(server, settings.address, folder)
    await server.start()
    _log.info("listening on %s:%d", settings.address.rpartition(":")[0], port)
    return server, checks


def _bind(server: grpc.aio.Server, address: str, folder: tls.Folder | None) -> int:
    """The port that `server` has. Ends the process with 1 when it cannot be had."""
    try:
        if folder:
            return server.add_secure_port(address, tls.server_credentials(folder))
        return server.add_insecure_port(address)
    except RuntimeError:  # which says no more
        _log.error("address: %s cannot be had; another process may have it", address)
        raise SystemExit(1) from None


async def _serve_until(
    stop: asyncio.Event,
    settings: ServiceSettings,
    descriptors: Sequence[ServiceDescriptor],
    assemble: Assemble,
    servicers: dict[str, boundary.Servicer],
    server: grpc.aio.Server,
    checks: Health,
    ended: asyncio.Event,
) -> None:
    names = [descriptor.full_name for descriptor in descriptors]
    async with assemble(settings) as assembled:
        servicers.update({descriptor.full_name: servicer for descriptor, servicer in assembled.items()})
        gc.collect()
        gc.freeze()  # what is loaded by now stays: collecting it again and again would only cost the tail
        ready = asyncio.create_task(_say_ready(assembled, checks, names))
        try:
            with watching(settings.blocked_loop_ms):
                await stop.wait()
                await _drain(settings, assembled, server, checks, ended)
        finally:
            ready.cancel()


async def _say_ready(
    assembled: Mapping[ServiceDescriptor, boundary.Servicer], checks: Health, names: Sequence[str]
) -> None:
    """Have health say SERVING, once the service is ready where it has a say in that; calls are served before."""
    if isinstance(assembled, Assembled) and assembled.ready:
        await assembled.ready()
    _set_health(checks, names, _SERVING)
    _log.info("serving")


async def _drain(
    settings: ServiceSettings,
    assembled: Mapping[ServiceDescriptor, boundary.Servicer],
    server: grpc.aio.Server,
    checks: Health,
    ended: asyncio.Event,
) -> None:
    """Say that the process stops, and return when the calls in flight have ended: after the grace at the latest."""
    _log.info("stopping: up to %d ms for calls in flight", settings.grace_ms)
    doors: Sequence[Door] = getattr(assembled, "doors", ())
    checks.leave()
    for door in doors:
        door.leave()
    lame_duck_ms = min(settings.lame_duck_ms, settings.grace_ms)
    await asyncio.sleep(lame_duck_ms / 1000)
    for servicer in assembled.values():
        if hasattr(servicer, "drain"):
            servicer.drain()
    asyncio.get_running_loop().call_later(_TOLD_S, ended.set)
    grace_s = (settings.grace_ms - lame_duck_ms) / 1000
    await asyncio.gather(server.stop(grace_s), *(door.stop(grace_s) for door in doors))


def _authorize(servicers: Mapping[str, boundary.Servicer], metadata: wrapped.Metadata, identity: str) -> None:
    """Ask every servicer that wants to be asked. Raises what it raises, and `Starting` as long as there is none."""
    if not servicers:  # who may see it is not known yet
        raise Starting("the service is starting")
    for servicer in servicers.values():
        if hasattr(servicer, "authorize"):
            servicer.authorize(metadata, identity)


def _set_health(checks: Health, names: Sequence[str], status: int) -> None:
    for name in ("", *names):
        checks.set(name, status)


def server_options(settings: ServiceSettings) -> list[tuple[str, int]]:
    """What gRPC's server defaults get wrong for a mesh."""
    return [
        ("grpc.max_send_message_length", settings.max_message_bytes),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        # A flood of started and cancelled calls on one connection must not starve the others.
        ("grpc.max_concurrent_streams", settings.max_concurrent_streams),
        # Only a call that the process has begun can be refused with a reason. By default gRPC drops some beyond
        # 1,000 waiting calls and all beyond 3,000, and their callers get CANCELLED.
        ("grpc.server.max_pending_requests", settings.max_waiting_calls),
        ("grpc.server.max_pending_requests_hard_limit", settings.max_waiting_calls),
        # What a stream may send ahead of who reads it. gRPC's own estimate grows to 8 MiB and more for one that sends
        # faster than it is read, so a few hold all the memory; without it the largest messages take 5 ms longer.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", arrival.WINDOW_BYTES),
        # A second process on the same port is a mistake, unless it is a worker.
        ("grpc.so_reuseport", int(settings.processes > 1)),
        # Our channels ping every 0.7 s of silence; the default takes that for abuse.
        ("grpc.http2.min_ping_interval_without_data_ms", 500),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", 10_000),
        *ping_timeout_options(max(2_000, ping_timeout_ms())),
    ]
