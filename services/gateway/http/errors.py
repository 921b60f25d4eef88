"""Errors as HTTP responses: status, type and code, and whether to retry.

A client repeats 408, 409, 429 and 5xx automatically, unless `x-should-retry` says no.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Container, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from google.rpc import code_pb2

from services.runtime.errors import (
    ContextExceeded,
    InvalidInput,
    Missing,
    NotSupported,
    ServiceError,
    TooLate,
    Unavailable,
)
from services.runtime.rpc.boundary import to_status

Headers = list[tuple[bytes, bytes]]

# google.rpc.Code: (status, type).
STATUSES: Mapping[int, tuple[int, str]] = {
    code_pb2.INVALID_ARGUMENT: (400, "invalid_request_error"),
    code_pb2.FAILED_PRECONDITION: (400, "invalid_request_error"),
    code_pb2.OUT_OF_RANGE: (400, "invalid_request_error"),
    code_pb2.UNAUTHENTICATED: (401, "authentication_error"),
    code_pb2.PERMISSION_DENIED: (403, "permission_error"),
    code_pb2.NOT_FOUND: (404, "not_found_error"),
    code_pb2.ABORTED: (409, "conflict_error"),
    code_pb2.ALREADY_EXISTS: (409, "conflict_error"),
    code_pb2.RESOURCE_EXHAUSTED: (429, "rate_limit_error"),
    code_pb2.CANCELLED: (499, "cancelled_error"),
    code_pb2.INTERNAL: (500, "server_error"),
    code_pb2.UNKNOWN: (500, "server_error"),
    code_pb2.DATA_LOSS: (500, "server_error"),
    code_pb2.UNIMPLEMENTED: (501, "not_supported_error"),
    code_pb2.UNAVAILABLE: (503, "server_error"),
    code_pb2.DEADLINE_EXCEEDED: (504, "timeout_error"),
}
# By the error's reason, where a client knows another status or code for it; other codes are the reason in lower case.
REASONS: Mapping[str, tuple[int, str]] = {
    "INVALID_INPUT": (400, "invalid_value"),
    "KEY_UNKNOWN": (401, "invalid_api_key"),
    "MODEL_UNKNOWN": (404, "model_not_found"),
    "ROUTE_UNKNOWN": (404, "unknown_url"),
    "METHOD_UNKNOWN": (405, "method_not_allowed"),
    "BODY_LATE": (408, "request_timeout"),
    "BODY_TOO_LARGE": (413, "request_too_large"),
    "NOT_JSON": (415, "unsupported_media_type"),
    "QUOTA_EXCEEDED": (429, "rate_limit_exceeded"),
    "SHED": (429, "overloaded"),
    "CONTENT_REFUSED": (400, "content_policy_violation"),
    "MODEL_NOT_AT_PROVIDER": (404, "model_not_found"),
    "FORM_BROKEN": (502, "form_broken"),
    "PROVIDER_REFUSED": (502, "provider_refused"),
    "BODIES_WAITING": (503, "bodies_waiting"),
    "ANSWERS_WAITING": (503, "answers_waiting"),
}
_TYPES = {**dict(STATUSES.values()), 502: "server_error"}
_ANTHROPIC_TOO_LONG = "prompt is too long: "  # clients of Anthropic's API look for these beginnings
_ANTHROPIC_BEGINNINGS = (_ANTHROPIC_TOO_LONG, "input length and `max_tokens` exceed context limit")
# Retries of these would fail likewise, or cost as much again.
_NOT_RETRYABLE = frozenset(
    {code_pb2.INTERNAL, code_pb2.DEADLINE_EXCEEDED, code_pb2.UNIMPLEMENTED, code_pb2.FAILED_PRECONDITION}
)
# Fields whose names by HTTP differ from those of the protos.
_MEDIA_NAMES = {"images": "image_url", "audio": "input_audio", "data": "file", "options.language": "language"}
_PARTS = re.compile(r"^(messages\[\d+\])\.parts")
ANTHROPIC = "messages"  # the name of Anthropic's API in `provider_api`


class RouteUnknown(Missing):
    """No route has this path."""

    reason = "ROUTE_UNKNOWN"


class MethodUnknown(InvalidInput):
    """The route has other methods: those of `allow`, as the header of that name lists them."""

    reason = "METHOD_UNKNOWN"

    def __init__(self, path: str, allow: str, method: str):
        super().__init__(path, allow, method)
        self.allow = allow


class BodyTooLarge(InvalidInput):
    """A body above the limit of its bytes."""

    reason = "BODY_TOO_LARGE"


class BodyLate(TooLate):
    """A body that did not arrive in time."""

    reason = "BODY_LATE"


class NotJson(InvalidInput):
    """A body whose content type is not `application/json`."""

    reason = "NOT_JSON"


class NotOffered(ServiceError):
    """The gateway's settings lack the service that the route needs."""

    code: ClassVar[int] = code_pb2.UNIMPLEMENTED
    reason = "NOT_OFFERED"


class FirstTokenTimeout(TooLate):
    """No text within the request's first-token budget (`first_token_ms`)."""

    reason = "FIRST_TOKEN_TIMEOUT"


class SilenceTimeout(TooLate):
    """No further text within `silence_ms`."""

    reason = "SILENCE_TIMEOUT"


class BudgetTimeout(TooLate):
    """No text within the whole budget (`budget_ms`)."""

    reason = "BUDGET_TIMEOUT"


class Interrupted(Unavailable):
    """The model failed in mid-answer, and no other could continue."""

    reason = "INTERRUPTED"


@dataclass(frozen=True, slots=True)
class ContextOverflow:
    """The tokens of a conversation that exceeds the context (`limit`), for messages in which clients look for both
    numbers. None: not known."""

    limit: int | None
    tokens: int | None

    @classmethod
    def read(cls, error: ContextExceeded) -> ContextOverflow:
        """The numbers of an error."""
        limit, tokens = error.metadata.get("limit"), error.metadata.get("value")
        return cls(int(limit), int(tokens)) if limit and tokens else cls(None, None)

    def openai(self, message: str) -> str:
        """The message in OpenAI's form, if `message` has Anthropic's."""
        if self.limit is None or self.tokens is None or not message.startswith(_ANTHROPIC_TOO_LONG):
            return message
        return ContextExceeded.of(self.limit, self.tokens).message

    def anthropic(self, message: str) -> str:
        """The message in Anthropic's form."""
        if message.startswith(_ANTHROPIC_BEGINNINGS):
            return message
        known = self.limit is not None and self.tokens is not None
        return f"{_ANTHROPIC_TOO_LONG}{f'{self.tokens} tokens > {self.limit} maximum' if known else message}"


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """An error as a caller by HTTP receives it."""

    status: int
    type: str
    code: str
    message: str
    param: str | None = None
    retry_delay_s: float | None = None
    should_retry: bool | None = None  # None: clients decide by the status
    quota: str = ""  # `requests`, `tokens` or `concurrency`
    quota_left: int = 0
    allow: str = ""  # methods of the route
    provider_error: Mapping[str, Any] | None = None  # the object `error` of a provider's response
    provider_api: str = ""  # the API whose shape that object has
    report: Mapping[str, Any] | None = None  # trace id and decisions
    overflow: ContextOverflow | None = None

    def openai(self) -> dict[str, Any]:
        """The body in OpenAI's shape."""
        message = self.overflow.openai(self.message) if self.overflow else self.message
        error = {"message": message, "type": self.type, "param": self.param, "code": self.code}
        if self.provider_error and self.provider_api != ANTHROPIC:
            error = dict(self.provider_error)
        return {"error": error, **({"hedgerow": self.report} if self.report else {})}

    def responses(self) -> dict[str, Any]:
        """The body for a caller of Responses, whose conversation is its `input`."""
        return replace(self, param="input").openai() if self.overflow and self.param == "messages" else self.openai()

    def for_cohere_and_voyage(self) -> dict[str, Any]:
        """OpenAI's shape, and beside it the message under the names that Cohere's and Voyage's clients read."""
        body = self.openai()
        message = body["error"]["message"]
        return {**body, "message": message, "detail": body["error"].get("detail", message)}

    def headers(self) -> Headers:
        """Headers of a refusal beside its status."""
        headers = []
        if self.retry_delay_s is not None:
            headers.append((b"retry-after", b"%d" % math.ceil(self.retry_delay_s)))
            headers.append((b"retry-after-ms", b"%d" % math.ceil(self.retry_delay_s * 1000)))
        if self.quota in ("requests", "tokens"):
            quota = self.quota.encode()
            headers.append((b"x-ratelimit-remaining-" + quota, b"%d" % self.quota_left))
            headers.append((b"x-ratelimit-reset-" + quota, f"{self.retry_delay_s or 0:.3f}s".encode()))
        if self.should_retry is not None:
            headers.append((b"x-should-retry", b"true" if self.should_retry else b"false"))
        if self.allow:
            headers.append((b"allow", self.allow.encode()))
        if self.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        return headers


def with_http_names(error: ServiceError, http_fields: Container[str] = ()) -> ServiceError:
    """An error about a field of the proto, with the field's name by HTTP. Names in `http_fields` are not changed."""
    field = error.metadata.get("field", "")
    if field in http_fields:
        return error
    name = _PARTS.sub(r"\1.content", _MEDIA_NAMES.get(field, field))
    if name == field or not error.message.startswith(field):
        return error
    named = copy(error)
    named.metadata["field"], named.message = name, name + error.message.removeprefix(field)
    return named


def error_response(error: Exception) -> ErrorResponse:
    """The response for an error. The text of a bug, which is any error but a `ServiceError`, is not in it."""
    if not isinstance(error, ServiceError):
        status, kind = STATUSES[code_pb2.INTERNAL]
        return ErrorResponse(status, kind, "internal", to_status(error).message, should_retry=False)
    status, kind = STATUSES.get(error.code, STATUSES[code_pb2.INTERNAL])
    status, code = REASONS.get(error.reason, (status, error.reason.lower()))
    param, message = _param(error)
    if isinstance(error, NotSupported) and param:
        status, code = 400, "unsupported_parameter"
    response = ErrorResponse(
        status,
        _TYPES.get(status, kind),
        code,
        message,
        param,
        retry_delay_s=error.retry_delay_s,
        should_retry=False if error.code in _NOT_RETRYABLE and status >= 500 else None,
        quota=error.metadata.get("quota", ""),
        quota_left=max(0, int(error.metadata.get("left", 0))),
        allow=error.allow if isinstance(error, MethodUnknown) else "",
        report=_report(error),
        overflow=ContextOverflow.read(error) if isinstance(error, ContextExceeded) else None,
    )
    if body := error.metadata.get("provider_error"):
        status, api = int(error.metadata["provider_status"]), error.metadata["provider_api"]
        return replace(response, status=status, provider_error=json.loads(body), provider_api=api)
    return response


def _param(error: ServiceError) -> tuple[str | None, str]:
    """The invalid field and the message, by the field's name in OpenAI's API."""
    field = error.metadata.get("field")
    if not field:
        return None, error.message
    param = field.removeprefix("sampling.")
    return param, param + error.message.removeprefix(field) if error.message.startswith(field) else error.message


def _report(error: ServiceError) -> Mapping[str, Any] | None:
    trace_id = error.metadata.get("trace_id")
    if not trace_id:
        return None
    return {"trace_id": trace_id, "decisions": json.loads(error.metadata.get("decisions", "[]"))}
