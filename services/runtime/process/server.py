"""The gRPC server of a service process: health, reflection, and handlers for what the service serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection

from hedgerow.channel import ping_timeout_ms, ping_timeout_options
from services.runtime.errors import Starting
from services.runtime.process.config import ServiceSettings
from services.runtime.process.health import Health
from services.runtime.rpc import arrival, boundary, first_message, wrapped
from services.runtime.rpc.authorization import anyone, callers_of, probes_of
from services.runtime.rpc.standing import serving
from services.runtime.security import tls

_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_HEALTH = descriptor_pool.Default().FindServiceByName("grpc.health.v1.Health")
_REFLECTION = descriptor_pool.Default().FindServiceByName(reflection.SERVICE_NAME)
_log = logging.getLogger(__name__)


def make_server(
    settings: ServiceSettings,
    descriptors: Sequence[ServiceDescriptor],
    servicers: Mapping[str, boundary.Servicer],
    ended: asyncio.Event,
    folder: tls.Folder | None = None,
    checks: Health | None = None,
) -> tuple[grpc.aio.Server, Health]:
    """A server for `listen`, with health (NOT_SERVING), reflection and handlers for `descriptors`. Watches of health
    end when `ended` is set. With a `folder`, it serves the permitted callers of the service in its certificate;
    without, every caller in plaintext. `checks`: the health to serve; a new one without."""
    own = folder.current.identity if folder else ""
    admit, admit_probe = (callers_of(own), probes_of(own)) if folder else (anyone, anyone)
    server = grpc.aio.server(options=server_options(settings))
    checks = checks or Health()
    names = [descriptor.full_name for descriptor in descriptors]
    set_health(checks, names, _NOT_SERVING)
    own_ms = settings.first_message_ms
    # Health and reflection are open to every caller.
    bounds = own_ms or first_message.DEFAULT_MS, settings.max_message_bytes
    listed = reflection.aio.ReflectionServicer([*names, _HEALTH.full_name, _REFLECTION.full_name])
    if not own_ms:  # no strangers call
        methods = boundary.methods_by_path(descriptors, servicers, admit)
        streams = serving.handlers(methods, admit, settings.max_concurrent_streams, ended)
        server.add_generic_rpc_handlers((streams,))
    server.add_generic_rpc_handlers(
        (
            *(boundary.handlers(descriptor, servicers, admit, own_ms) for descriptor in descriptors),
            wrapped.handlers(_HEALTH, checks, ended, wrapped.allow, admit_probe, *bounds),
            wrapped.handlers(_REFLECTION, listed, ended, partial(_authorize, servicers), admit, *bounds),
        )
    )
    return server, checks


async def listen(server: grpc.aio.Server, address: str, folder: tls.Folder | None) -> None:
    """Have a server listen. Ends the process with 1 when it cannot have its port."""
    port = _bind(server, address, folder)
    await server.start()
    _log.info("listening on %s:%d", address.rpartition(":")[0], port)


def _bind(server: grpc.aio.Server, address: str, folder: tls.Folder | None) -> int:
    """The port that `server` has. Ends the process with 1 when it cannot listen."""
    try:
        if folder:
            return server.add_secure_port(address, tls.server_credentials(folder))
        return server.add_insecure_port(address)
    except RuntimeError:  # which says no more
        _log.error("address: cannot listen at %s; another process may use it", address)
        raise SystemExit(1) from None


def _authorize(servicers: Mapping[str, boundary.Servicer], metadata: wrapped.Metadata, identity: str) -> None:
    """Ask every servicer that wants to be asked. Raises what it raises, and `Starting` as long as there is none."""
    if not servicers:  # they have not said yet which callers may see it
        raise Starting("the service is starting")
    for servicer in servicers.values():
        if hasattr(servicer, "authorize"):
            servicer.authorize(metadata, identity)


def set_health(checks: Health, names: Sequence[str], status: int) -> None:
    """Have health say `status` of the process and of each service."""
    for name in ("", *names):
        checks.set(name, status)


def server_options(settings: ServiceSettings) -> list[tuple[str, int]]:
    """Options in place of gRPC's defaults that do not suit a mesh."""
    return [
        ("grpc.max_send_message_length", settings.max_message_bytes),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        # A flood of started and cancelled calls on one connection must not starve the others.
        ("grpc.max_concurrent_streams", settings.max_concurrent_streams),
        # Only a call that the process has begun can be refused with a reason. By default gRPC drops some beyond
        # 1,000 waiting calls and all beyond 3,000, and their callers get CANCELLED.
        ("grpc.server.max_pending_requests", settings.max_waiting_calls),
        ("grpc.server.max_pending_requests_hard_limit", settings.max_waiting_calls),
        # The bytes that a stream may send ahead of its reader. gRPC's own estimate grows to 8 MiB and more for one that
        # sends faster than it is read, so a few hold all the memory; without it the largest messages take 5 ms longer.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", arrival.WINDOW_BYTES),
        # A second server on the same port is a mistake, unless it is a worker or takes over.
        ("grpc.so_reuseport", int(settings.processes > 1 or settings.overlaps)),
        # Our channels ping every 0.7 s of silence; the default takes that for abuse.
        ("grpc.http2.min_ping_interval_without_data_ms", 500),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", 10_000),
        *ping_timeout_options(max(2_000, ping_timeout_ms())),
    ]
