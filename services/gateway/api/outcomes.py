"""How requests end: a histogram and a count of errors by tenant, and a line in the log for errors.

All of it is bounded, whatever callers send: the first 200 tenants have a label of their own, the others share
`(other)`, and each reason of a tenant has one line a minute, which says how many errors it stands for.
"""

from __future__ import annotations

import logging
import time
from contextvars import ContextVar
from functools import cache

from google.rpc import code_pb2
from opentelemetry import trace
from prometheus_client import Counter, Histogram

from services.runtime import telemetry
from services.runtime.deadline import Clock
from services.runtime.errors import ServiceError
from services.runtime.line_limit import LineLimit

MOST_TENANTS, OTHER, NONE = 200, "(other)", "(none)"
_TIMED = frozenset({"Generate", "POST"})  # others are no requests of the models, or conversations of many

_SECONDS = Histogram(
    "hedgerow_request_seconds", "Time of a request that succeeded, to its last byte.", ["tenant"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.8, 1, 1.5, 2, 2.5, 3, 4, 5, *telemetry.LONG_S),
)  # fmt: skip
_ERRORS = Counter("hedgerow_errors", "Requests that ended with an error.", ["tenant", "reason"])
_seconds, _errors = cache(_SECONDS.labels), cache(_ERRORS.labels)
_CALLERS = frozenset(  # errors that callers correct
    {
        code_pb2.INVALID_ARGUMENT,
        code_pb2.NOT_FOUND,
        code_pb2.PERMISSION_DENIED,
        code_pb2.UNAUTHENTICATED,
        code_pb2.UNIMPLEMENTED,
        code_pb2.ABORTED,
    }
)
TENANT: ContextVar[str] = ContextVar("tenant", default=NONE)  # of the call that runs
_log = logging.getLogger(__name__)


class Outcomes:
    """Used by one event loop."""

    def __init__(self, clock: Clock = time.monotonic):
        self._tenants, self._lines = {NONE}, LineLimit(clock)

    def ended(self, method: str, seconds: float, error: Exception | None = None) -> None:
        """A call of `TENANT` has ended after `seconds`; `method` is a gRPC method, or that of HTTP."""
        tenant, span = self._label(TENANT.get()), trace.get_current_span()
        span.set_attribute("hedgerow.tenant", TENANT.get())
        if error is None:
            if method in _TIMED:
                _seconds(tenant).observe(seconds)
            return
        reason = error.reason if isinstance(error, ServiceError) else ServiceError.reason
        span.set_attribute("error.type", reason)  # as OpenTelemetry's conventions have it
        _errors(tenant, reason).inc()
        if isinstance(error, ServiceError):  # any other is a bug, which has lines of its own
            self._log(tenant, error)

    def _label(self, tenant: str) -> str:
        if tenant not in self._tenants and len(self._tenants) > MOST_TENANTS:
            return OTHER
        self._tenants.add(tenant)
        return tenant

    def _log(self, tenant: str, error: ServiceError) -> None:
        left_out = self._lines.take((tenant, error.reason))
        if left_out is None:
            return
        level = logging.INFO if error.code in _CALLERS else logging.WARNING
        more = f"; {left_out} more since the last line" if left_out else ""
        said = "" if error.outline == error.reason else f": {error.outline}"
        _log.log(level, "request of tenant %s failed: %s%s%s", tenant, error.reason, said, more)
