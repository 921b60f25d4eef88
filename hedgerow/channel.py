"""Settings of all gRPC channels of the SDK and the services, and functions for their calls.

With gRPC's defaults a channel detects a frozen peer after a minute, and waits up to two minutes before it connects
again. Both exceed any budget here.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.message import Message

from hedgerow._errors import invalid
from hedgerow._peer import stays_here
from hedgerow._tls import Tls

MAX_MESSAGE_BYTES = 4 * 1024 * 1024  # one message, either way; gRPC's own default, made explicit

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # A ping after 0.7 s of silence, though gRPC sends one a second at most. See `ping_timeout_ms`.
    ("grpc.keepalive_time_ms", 700),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    # A backend that came back is found within a third of a second: gRPC adds up to a fifth to these.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 250),
    # Retries are a policy of the mesh, with a budget; gRPC's transparent ones would multiply with it.
    ("grpc.enable_retries", 0),
    # A channel to a backend shares no connection with another channel, so closing one never disturbs the other.
    ("grpc.use_local_subchannel_pool", 1),
)

PING_TIMEOUT_VARIABLE = "HEDGEROW_PING_TIMEOUT_MS"
_PING_TIMEOUT_MS, _PING_TIMEOUT_RANGE = 900, range(100, 60_001)
_CONNECT_TIMEOUT_MS = 1_000

# In an INTERNAL status gRPC's word for a stream that was reset: its server died in mid-answer, behind a proxy.
RESET = "RST_STREAM"

_IN_TURN = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})


def open_channel(
    target: str, options: tuple[tuple[str, int | str], ...] = (), tls: Tls | None = None
) -> grpc.aio.Channel:
    """Open a channel to `target` (`host:port`, `unix:path`, `xds:///name`); it connects at its first use.

    With gRPC's list of addresses, `ipv4:10.0.0.1:50051,10.0.0.2:50051`, calls use them in turn. `options` override
    `CHANNEL_OPTIONS` of the same name. Without `tls` it is plain text. With `tls`, an `xds:///` target uses the control
    plane's certificate settings, and `tls` if there are none.
    """
    # Of two options of one name gRPC takes the first.
    if tls is None:
        return grpc.aio.insecure_channel(target, options=(*options, *channel_options(target)))
    named = (*options, *channel_options(target), *_name(tls))
    return grpc.aio.secure_channel(target, _credentials(target, tls), named)


def open_blocking_channel(target: str, tls: Tls | None = None) -> grpc.Channel:
    """`open_channel` for programs without an event loop."""
    if tls is None:
        return grpc.insecure_channel(target, options=channel_options(target))
    return grpc.secure_channel(target, _credentials(target, tls), (*channel_options(target), *_name(tls)))


def _credentials(target: str, tls: Tls) -> grpc.ChannelCredentials:
    ca, certificate, key = tls.pem()
    own = grpc.ssl_channel_credentials(ca, key, certificate)
    return grpc.xds_channel_credentials(own) if target.startswith("xds:") else own


def _name(tls: Tls) -> tuple[tuple[str, str], ...]:
    """The channel option with which gRPC checks the certificate against this name instead of the target's."""
    return (("grpc.ssl_target_name_override", tls.server_name),) if tls.server_name else ()


def channel_options(target: str) -> tuple[tuple[str, int | str], ...]:
    """`CHANNEL_OPTIONS` and the ping timeout, and for a list of addresses the policy that uses all of them: by default
    gRPC uses the first. No proxy of the environment (`http_proxy`) gets calls to this machine."""
    connect = ("grpc.min_reconnect_backoff_ms", connect_timeout_ms())  # also the time limit of one attempt
    proxy = ("grpc.enable_http_proxy", int(not stays_here(target)))
    options = (*CHANNEL_OPTIONS, *ping_timeout_options(ping_timeout_ms()), connect, proxy)
    return (*options, ("grpc.service_config", _IN_TURN)) if "," in target else options


def ping_timeout_ms() -> int:
    """How long a channel waits for the answer to a ping, before it considers its peer dead and fails all its calls.

    `HEDGEROW_PING_TIMEOUT_MS`, by default 900: a frozen peer is detected in less than 2 s. If processes get no CPU for
    a second (throttled containers, busy machines), a larger value keeps their connections. Measured with SIGSTOP: a
    peer that is stopped for 1 s loses no call, and for 2 s all calls of its connection; with 3,000 ms it loses none in
    2 s and all in 5 s. A caller that is stopped for 5 s loses none.

    Raises `InvalidArgument` for a value that is no whole number from 100 to 60,000.
    """
    text = os.environ.get(PING_TIMEOUT_VARIABLE) or str(_PING_TIMEOUT_MS)
    if not text.isdecimal() or int(text) not in _PING_TIMEOUT_RANGE:
        limits = f"a whole number of milliseconds from {_PING_TIMEOUT_RANGE.start} to {_PING_TIMEOUT_RANGE.stop - 1}"
        raise invalid(PING_TIMEOUT_VARIABLE, limits, text)
    return int(text)


def connect_timeout_ms() -> int:
    """The time limit of one attempt to connect: a second, or the ping timeout if that is longer.

    The kernel of a peer without CPU accepts a connection, but the peer does not answer yet.
    """
    return max(_CONNECT_TIMEOUT_MS, ping_timeout_ms())


def ping_timeout_options(timeout_ms: int) -> tuple[tuple[str, int], ...]:
    """Options for channels and servers. `keepalive_timeout_ms` alone detects a frozen peer only after a minute: the
    HTTP/2 layer has its own ping timeout."""
    return ("grpc.keepalive_timeout_ms", timeout_ms), ("grpc.http2.ping_timeout_ms", timeout_ms)


async def send(call: Any, request: Message | bytes) -> bool:
    """Send one message of a call with a stream of requests, in bytes if the call has no serializer. Returns False if
    the call is over: reading from it then raises the reason.

    It replaces `call.write`, which loses that reason: if the other side has refused the call meanwhile, it makes the
    status INTERNAL, "Internal error from Core" (grpcio 1.85; its request iterators do the same).
    """
    if call.done():
        return False
    try:
        await call.wait_for_connection()
        if core := getattr(call, "_cython_call", None):
            await core.send_serialized_message(request if isinstance(request, bytes) else request.SerializeToString())
        else:  # a release that names it otherwise: a refusal may lose its reason, nothing else
            await call.write(request)
    except (grpc.RpcError, grpc.aio.InternalError, asyncio.InvalidStateError):
        return False
    except asyncio.CancelledError:
        call.cancel()  # gRPC may still hold the message, and would refuse the next one
        raise
    return True


async def done_sending(call: Any) -> None:
    """Close this side of a call with a stream of requests, if it is not over."""
    with suppress(grpc.RpcError, grpc.aio.InternalError):
        await call.done_writing()


async def answer(call: Any) -> Any:
    """The response of a unary call, in place of `await call`: if the waiting task is cancelled, `cancel` cancels the
    call."""
    if (task := getattr(call, "_call_response", None)) is None:
        return await call
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        cancel(call)
        raise
    return await call


def cancel(call: Any) -> None:
    """Cancel a unary call, if it is not over, in place of `call.cancel`.

    `call.cancel` also cancels the task that waits for gRPC's core, and only that task frees the call's memory: 1,180
    bytes of each such call are lost (grpcio 1.85.1). Here the task continues until the core ends the call.
    """
    if (core := getattr(call, "_cython_call", None)) is None:
        call.cancel()  # a release that names it otherwise loses the bytes
    elif not core.done():
        core.cancel("Locally cancelled by application!")  # gRPC's own words
