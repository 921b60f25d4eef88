"""Errors of calls to backends, translated into our own error tree."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from hedgerow.channel import RESET
from services.runtime.errors import (
    CallerRefused,
    ContextExceeded,
    Exhausted,
    Faulty,
    InvalidInput,
    Misconfigured,
    Missing,
    NotSupported,
    ServiceError,
    ShareUsed,
    Starting,
    TooLate,
    Unavailable,
)
from services.runtime.line_limit import LineLimit
from services.runtime.rpc.boundary import DOMAIN

_log, _lines = logging.getLogger(__name__), LineLimit()
_DETAILS = "grpc-status-details-bin"
# Of what a service says of a refusal: the field at fault and its limit, and a provider's own words.
_SAID = ("field", "limit", "value", "provider_api", "provider_error", "provider_status")
_OF_CONNECTIONS = ("failed to connect", "DNS resolution failed", "empty address list", "no healthy upstream")
ERRORS: dict[grpc.StatusCode, type[ServiceError]] = {
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: TooLate,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Exhausted,
    grpc.StatusCode.NOT_FOUND: Missing,
    grpc.StatusCode.UNIMPLEMENTED: NotSupported,
    grpc.StatusCode.INTERNAL: Faulty,
    grpc.StatusCode.UNKNOWN: Faulty,
    grpc.StatusCode.DATA_LOSS: Faulty,
}


class Refused(InvalidInput):
    """A service behind the gateway refused the request; its words are for the caller."""

    def __init__(self, message: str, **metadata: str):
        ServiceError.__init__(self, message)
        self.metadata = metadata


class ContentRefused(Refused):
    """A filter of the provider has flagged what the request says."""

    reason = "CONTENT_REFUSED"


class ProviderRefused(Misconfigured):
    """The provider does not accept the credential, or its account is empty."""

    reason = "PROVIDER_REFUSED"


class ModelNotAtProvider(Misconfigured):
    """The provider has no such model, or nothing at that address."""

    reason = "MODEL_NOT_AT_PROVIDER"


class ImageRefused(Refused):
    """The vision service refused a picture: it is none, is too large, or is damaged."""

    reason = "IMAGE_REFUSED"


class AnswerTooLarge(Refused):
    """The answer is larger than the limit. The model has read the request, and is paid for it."""

    reason = "ANSWER_TOO_LARGE"


_REFUSALS: Mapping[str, type[Refused]] = {each.reason: each for each in (ImageRefused, AnswerTooLarge, ContentRefused)}
_SETTINGS: Mapping[str, type[Misconfigured]] = {each.reason: each for each in (ProviderRefused, ModelNotAtProvider)}


def translate(error: grpc.aio.AioRpcError, backend: str) -> ServiceError:
    """The error of a failed call to `backend`, by name. Codes without a class here are a broken backend.

    Callers receive the text of our own services, which is written for them. Any other text may hold addresses: gRPC's
    own messages go to the log, and so do refusals between services.
    """
    info, retry_delay_s = _details(error)
    details, code = error.details() or "", error.code()
    cls = _class_of(code, details, info)
    if info.domain != DOMAIN or info.reason == CallerRefused.reason:
        worth_logging = details.startswith(_OF_CONNECTIONS) or info.domain == DOMAIN
        if worth_logging and _lines.take((backend, code)) is not None:
            _log.info("%s: %s: %s", backend, code.name, details)
        details = ""
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        said = {name: info.metadata[name] for name in _SAID if name in info.metadata} if info.domain == DOMAIN else {}
        if said and info.reason == ContextExceeded.reason:
            return _too_long(details, info.metadata, said)
        return _REFUSALS.get(info.reason, Refused)(details or f"{backend}: {code.name}", **said)
    if cls is NotSupported and (field := info.metadata.get("field")):
        return NotSupported(details, field=field)
    begin, outline = f"{backend}: {code.name}", info.metadata.get("outline")
    more = {"outline": f"{begin}: {outline}"} if details and outline else {}
    return cls(f"{begin}: {details}" if details else begin, retry_delay_s=retry_delay_s, **more)


def _class_of(code: grpc.StatusCode, details: str, info: error_details_pb2.ErrorInfo) -> type[ServiceError]:
    cls = ERRORS.get(code, Unavailable)
    if code is grpc.StatusCode.INTERNAL and RESET in details:
        cls = Unavailable  # the way broke, not the service
    if cls is NotSupported and info.domain != DOMAIN:
        cls = Unavailable  # not our service at all
    if cls is Exhausted and info.reason == ShareUsed.reason:
        cls = ShareUsed
    if cls is Unavailable and info.domain == DOMAIN and info.reason == Starting.reason:
        cls = Starting
    if code is grpc.StatusCode.FAILED_PRECONDITION and info.domain == DOMAIN:
        cls = _SETTINGS.get(info.reason, cls)
    return cls


def _too_long(details: str, metadata: Mapping[str, str], said: Mapping[str, str]) -> ContextExceeded:
    limit, tokens = (int(text) if (text := metadata.get(name, "")).isdecimal() else None for name in ("limit", "value"))
    error = ContextExceeded(details, limit, tokens)
    error.metadata |= said
    return error


def _details(error: grpc.aio.AioRpcError) -> tuple[error_details_pb2.ErrorInfo, float | None]:
    """The origin and reason of an error, and its retry delay, as far as it has them (google.rpc.ErrorInfo,
    RetryInfo)."""
    raw = next((value for key, value in error.trailing_metadata() or () if key == _DETAILS), b"")
    info, retry, retry_delay_s = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo(), None
    with suppress(DecodeError):
        for detail in status_pb2.Status.FromString(cast(bytes, raw)).details:
            if not detail.Unpack(info) and detail.Unpack(retry):
                retry_delay_s = retry.retry_delay.ToNanoseconds() / 1e9
    return info, retry_delay_s
