"""gRPC's errors to the SDK's, with `google.rpc.ErrorInfo` and `RetryInfo` where the service sent them."""

from __future__ import annotations

from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from hedgerow._errors import DeadlineExceeded, HedgerowError, Unavailable, error_for
from hedgerow._peer import Peer
from hedgerow.channel import RESET

# gRPC's words, after those of `_CONNECT_FAILURES`, for a server that is there.
_NOT_TRUSTED = ("handshake failed", "verification check failed")
_HTTP = "http1.x server"
_NO_TLS = "wrong_version_number"
_HUNG_UP = ("socket closed", "connection reset")
_OWN = ("locally cancelled", "channel closed")  # gRPC's words for a call that this side has cancelled
_CONNECT_FAILURES = ("failed to connect", "errors resolving", "dns resolution failed")


def from_rpc_error(
    error: grpc.RpcError, peer: Peer, timeout_s: float | None, trace_id: str | None = None
) -> HedgerowError:
    """The typed error for what a call of `timeout_s` to `peer` raised. `error` is a sync or an asyncio one."""
    call: Any = error
    status = _status(call)
    if status is None:
        return _without_details(call, peer, timeout_s, trace_id)
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    for detail in status.details:
        _ = detail.Unpack(info) or detail.Unpack(retry)
    return error_for(
        call.code().name,
        status.message,
        reason=info.reason,
        metadata=info.metadata,
        retry_delay_s=retry.retry_delay.ToNanoseconds() / 1e9 if retry.HasField("retry_delay") else None,
        trace_id=trace_id,
    )


def no_service_at(peer: Peer, detail: str = "") -> Unavailable:
    """No process answers at the peer's address. The reason names the service: `NO_GATEWAY`, `NO_VISION_SERVICE` …"""
    metadata = {"target": peer.target, **({"detail": detail} if detail else {})}
    reason = f"NO_{peer.service.upper().replace(' ', '_')}"
    return Unavailable(f"no {peer.service} at {peer.target}{_because(peer, detail)}", reason=reason, metadata=metadata)


def _because(peer: Peer, detail: str) -> str:
    """The fault of the target itself, if it has one."""
    if "resol" in detail.lower():
        return ": this name cannot be resolved"
    return "" if ":" in peer.target else ", port 443: the target names no port"


def _not_proven(peer: Peer, text: str) -> Unavailable | None:
    """A process listens, but the connection failed during authentication."""
    if _HTTP in text.lower():
        problem = "the port speaks HTTP/1.1, not gRPC; the gateway's gRPC port is another one, 50050 by default"
        reason = "NOT_GRPC"
    elif _NO_TLS in text.lower():
        problem, reason = "the port speaks no TLS", "NOT_TLS"
    elif any(words in text.lower() for words in _NOT_TRUSTED):
        problem, reason = "its certificate is not the one that was expected", "NOT_TRUSTED"
    elif any(words in text.lower() for words in _HUNG_UP):
        wanted = "it may not take this caller's certificate" if peer.tls else "it may speak TLS alone"
        problem, reason = f"it hung up at once; {wanted}", "HUNG_UP"
    else:
        return None
    message = f"no connection to the {peer.service} at {peer.target}: {problem}"
    return Unavailable(message, reason=reason, metadata={"target": peer.target, "detail": text})


def _status(call: Any) -> status_pb2.Status | None:
    try:
        return rpc_status.from_call(call)
    except ValueError:  # details that contradict the status: trust the status
        return None


def _without_details(call: Any, peer: Peer, timeout_s: float | None, trace_id: str | None) -> HedgerowError:
    """What gRPC itself says: the connection failed, or our own deadline passed."""
    code, text = call.code(), call.details() or ""
    if code is grpc.StatusCode.UNAVAILABLE and text.lower().startswith(_CONNECT_FAILURES):
        return _not_proven(peer, text) or no_service_at(peer, text)
    if code is grpc.StatusCode.UNAVAILABLE or (code is grpc.StatusCode.INTERNAL and RESET in text):
        message = f"lost the connection to the {peer.service} at {peer.target}: {text}"
        return Unavailable(message, reason="CONNECTION_LOST", trace_id=trace_id)
    # A server that stops drops what it has not begun.
    if code is grpc.StatusCode.CANCELLED and not any(words in text.lower() for words in _OWN):
        message = f"the {peer.service} at {peer.target} dropped the call: it may be stopping"
        return Unavailable(message, reason="CONNECTION_LOST", trace_id=trace_id)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and timeout_s is not None:
        message = f"the {peer.service} at {peer.target} had not finished after {timeout_s:g} s"
        return DeadlineExceeded(message, reason="CLIENT_DEADLINE", trace_id=trace_id)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        text = f"the server at {peer.target} is no {peer.service}, or an older one: {text}"
    return error_for(code.name, text or code.name, trace_id=trace_id)
