"""Everything the SDK raises about an answer.

HedgerowError
├── InvalidArgument    the request can never be served; `metadata` names field, limit and value
├── Unauthenticated    the API key is missing or not known
├── PermissionDenied   the key is known, and may not do this
├── NotFound           what was asked for by name, a model for example, does not exist
├── ResourceExhausted  busy, not broken: come back after `retry_delay_s`
├── DeadlineExceeded   the time was over before there was anything to give
├── Unavailable        broken or not there; another try may work
├── Cancelled          the call was cancelled
└── Internal           a bug, ours or the gateway's
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hedgerow._reports import Decision, PartialAnswer


class HedgerowError(Exception):
    """An answer that did not come. Match on the class or on `reason`; the message is for people and may change."""

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
        self.retry_delay_s = retry_delay_s  # when to come back, in seconds; None where the gateway did not say
        self.partial: PartialAnswer | None = None  # what had come of a streamed answer; None for all other calls
        told = self.metadata.pop("trace_id", None)
        self.trace_id = trace_id or told  # 32 hexadecimal digits; None where no gateway was reached
        # Decisions of the gateway's policies before the error.
        self.decisions = _decisions(self.metadata.pop("decisions", "[]"))


class InvalidArgument(HedgerowError):
    """The request can never be served as it stands."""

    code = "INVALID_ARGUMENT"


class Unauthenticated(HedgerowError):
    """The API key is missing or not known."""

    code = "UNAUTHENTICATED"


class PermissionDenied(HedgerowError):
    """The API key is known, and may not do this."""

    code = "PERMISSION_DENIED"


class NotFound(HedgerowError):
    """The named thing does not exist."""

    code = "NOT_FOUND"


class ResourceExhausted(HedgerowError):
    """Busy, not broken: come back after `retry_delay_s`."""

    code = "RESOURCE_EXHAUSTED"


class DeadlineExceeded(HedgerowError):
    """The time was over before there was anything to give."""

    code = "DEADLINE_EXCEEDED"


class Unavailable(HedgerowError):
    """Broken or not there; another try, here or elsewhere, may work."""

    code = "UNAVAILABLE"


class Cancelled(HedgerowError):
    """The call was cancelled."""

    code = "CANCELLED"


class Internal(HedgerowError):
    """A bug, ours or the gateway's."""

    code = "INTERNAL"


def _decisions(text: str) -> tuple[Decision, ...]:
    """The decisions that a gateway sent; empty where this SDK cannot read them."""
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
