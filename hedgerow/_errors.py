"""The errors of the SDK.

HedgerowError
├── InvalidArgument    the request is invalid; `metadata` names field, limit and value
├── Unauthenticated    the API key is missing or unknown
├── PermissionDenied   the API key has no permission for the request
├── NotFound           a named thing, such as a model, does not exist
├── ResourceExhausted  busy: try again after `retry_delay_s`
├── DeadlineExceeded   no answer within the budget
├── Unavailable        broken or not reachable; a retry may succeed
├── Cancelled          the call was cancelled
└── Internal           a bug of the SDK or the gateway
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hedgerow._reports import Decision, PartialAnswer


class HedgerowError(Exception):
    """A failed call. Match on the class or on `reason`; the message is for people and may change."""

    code: str = "UNKNOWN"  # the canonical gRPC status code's name

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        metadata: Mapping[str, str] = MappingProxyType({}),
        retry_delay_s: float | None = None,
        trace_id: str | None = None,
    ):
        super().__init__(message)
        self.message = message
        self.reason = reason or self.code  # a stable label, for example `MODEL_UNKNOWN`
        self.metadata = dict(metadata)  # of google.rpc.ErrorInfo
        self.retry_delay_s = retry_delay_s  # seconds to wait before a retry; None: not known
        self.partial: PartialAnswer | None = None  # the part of a streamed answer that arrived; None for other calls
        metadata_trace_id = self.metadata.pop("trace_id", None)
        self.trace_id = trace_id or metadata_trace_id  # 32 hexadecimal digits; None if no gateway was reached
        # Decisions of the gateway's policies before the error.
        self.decisions = _decisions(self.metadata.pop("decisions", "[]"))


class InvalidArgument(HedgerowError):
    """The request is invalid."""

    code = "INVALID_ARGUMENT"


class Unauthenticated(HedgerowError):
    """The API key is missing or unknown."""

    code = "UNAUTHENTICATED"


class PermissionDenied(HedgerowError):
    """The API key has no permission for the request."""

    code = "PERMISSION_DENIED"


class NotFound(HedgerowError):
    """The named thing does not exist."""

    code = "NOT_FOUND"


class ResourceExhausted(HedgerowError):
    """Busy: try again after `retry_delay_s`."""

    code = "RESOURCE_EXHAUSTED"


class DeadlineExceeded(HedgerowError):
    """No answer within the budget."""

    code = "DEADLINE_EXCEEDED"


class Unavailable(HedgerowError):
    """Broken or not reachable; a retry may succeed."""

    code = "UNAVAILABLE"


class Cancelled(HedgerowError):
    """The call was cancelled."""

    code = "CANCELLED"


class Internal(HedgerowError):
    """A bug of the SDK or the gateway."""

    code = "INTERNAL"


def _decisions(text: str) -> tuple[Decision, ...]:
    """The decisions of a gateway; empty if this SDK cannot read them."""
    try:
        return tuple(Decision(**made) for made in json.loads(text))
    except (ValueError, TypeError):
        return ()


_BY_CODE = {cls.code: cls for cls in HedgerowError.__subclasses__()}


def error_for(code: str, message: str, **details: Any) -> HedgerowError:
    """The error for a canonical code's name; a plain `HedgerowError` for a code that no gateway should send."""
    error = _BY_CODE.get(code, HedgerowError)(message, **details)
    error.code = code
    return error


def invalid(field: str, limit: str, value: object, advice: str = "") -> InvalidArgument:
    """The same words and metadata as the gateway's own refusals: `tier: fast, balanced or quality, got best`."""
    shown = str(value)
    return InvalidArgument(
        f"{field}: {limit}, got {shown}{f'; {advice}' if advice else ''}",
        reason="INVALID_INPUT",
        metadata={"field": field, "limit": limit, "value": shown},
    )
