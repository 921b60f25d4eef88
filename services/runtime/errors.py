"""The one error tree. Each error knows its canonical code and a stable `reason`; texts are for people and may change.

    ServiceError
    ├── InvalidInput     INVALID_ARGUMENT    names the field, the limit and the value
    │   └── ContextExceeded                  … of a conversation, in tokens
    ├── Unauthenticated  UNAUTHENTICATED
    ├── Forbidden        PERMISSION_DENIED   known caller without permission
    ├── Missing          NOT_FOUND
    ├── Exhausted        RESOURCE_EXHAUSTED  busy: has a retry delay
    │   └── ShareUsed                        … this tenant's share only
    ├── TooLate          DEADLINE_EXCEEDED
    ├── NotSupported     UNIMPLEMENTED       this backend cannot, another may
    ├── Misconfigured    FAILED_PRECONDITION the operator must correct it
    ├── Unavailable      UNAVAILABLE         broken: may be retried
    │   └── Starting                         … not ready yet, not a failure
    └── Faulty           INTERNAL            failed on this request: not sent to another

Services derive leaves from these in their own `errors.py`. Anything else that is raised is a bug and reaches the caller
as INTERNAL with a fixed text and a correlation id.
"""

from __future__ import annotations

from typing import ClassVar, Self

from google.rpc import code_pb2

LONGEST_FIELD, LONGEST_LIMIT = 200, 1_000  # characters: gRPC refuses 8 KiB of trailers, with each there thrice


class ServiceError(Exception):
    """An error that a service reports to its caller."""

    code: ClassVar[int] = code_pb2.INTERNAL  # google.rpc.Code
    reason: ClassVar[str] = "INTERNAL"  # goes into google.rpc.ErrorInfo
    retryable: ClassVar[bool] = False
    quotes: ClassVar[bool] = False  # whether the message repeats what the caller sent

    def __init__(self, message: str, *, retry_delay_s: float | None = None, **metadata: str):
        super().__init__(message)
        self.message = message
        self.retry_delay_s = retry_delay_s
        self.metadata = metadata

    def __copy__(self) -> Self:
        """A copy with its own metadata, because handlers write into it."""
        copied = type(self).__new__(type(self), *self.args)
        copied.__dict__.update(self.__dict__, metadata=dict(self.metadata))
        return copied

    @property
    def outline(self) -> str:
        """For reports, traces and logs, which must not contain callers' texts: the message, or only the reason
        if the message quotes the request. `metadata` may have an outline of a message that ends with third parties'
        words."""
        return self.metadata.get("outline") or (self.reason if self.quotes else self.message)


class InvalidInput(ServiceError):
    """The request is invalid."""

    code = code_pb2.INVALID_ARGUMENT
    reason = "INVALID_INPUT"
    quotes = True

    def __init__(self, field: str, limit: str, value: object):
        """`limit` is the allowed range, `value` the given one: `messages: 1 to 64, got 0`."""
        field, limit, shown = shorten(field, LONGEST_FIELD), shorten(limit, LONGEST_LIMIT), shorten(str(value))
        super().__init__(f"{field}: {limit}, got {shown}", field=field, limit=limit, value=shown)


class ContextExceeded(InvalidInput):
    """The conversation has more tokens than the model's context. `metadata` has both numbers if they are known."""

    reason = "CONTEXT_LENGTH_EXCEEDED"

    def __init__(self, message: str, limit: int | None = None, tokens: int | None = None):
        ServiceError.__init__(self, message, field="messages")
        if limit is not None and tokens is not None:
            self.metadata |= {"limit": str(limit), "value": str(tokens)}

    @classmethod
    def of(cls, limit: int, tokens: int, *, answer: int = 0, at_least: bool = False) -> Self:
        """With a message as OpenAI's API has it. `limit`: of the context; `tokens`: of the messages; `answer`: reserved
        for the answer."""
        asked, what = f"your messages resulted in {'at least ' if at_least else ''}{tokens} tokens", "messages"
        if answer:
            asked = f"you requested {tokens + answer} tokens ({tokens} in the messages, {answer} in the completion)"
            what = "messages or completion"
        text = f"This model's maximum context length is {limit} tokens. However, {asked}."
        return cls(f"{text} Please reduce the length of the {what}.", limit, tokens + answer)


class Unauthenticated(ServiceError):
    """The credential is missing or unknown."""

    code = code_pb2.UNAUTHENTICATED
    reason = "UNAUTHENTICATED"


class Forbidden(ServiceError):
    """The caller has no permission for the request."""

    code = code_pb2.PERMISSION_DENIED
    reason = "FORBIDDEN"


class CallerRefused(Forbidden):
    """The calling service, by its certificate, may not call this one."""

    reason = "CALLER_REFUSED"


class Missing(ServiceError):
    """The named thing does not exist."""

    code = code_pb2.NOT_FOUND
    reason = "MISSING"
    quotes = True


class Exhausted(ServiceError):
    """Busy: try again after `retry_delay_s`."""

    code = code_pb2.RESOURCE_EXHAUSTED
    reason = "EXHAUSTED"


class ShareUsed(Exhausted):
    """The tenant has used its share; other tenants are served."""

    reason = "SHARE_USED"


class TooLate(ServiceError):
    """The deadline passed without a result."""

    code = code_pb2.DEADLINE_EXCEEDED
    reason = "TOO_LATE"


class NotSupported(ServiceError):
    """This backend does not support the request. It is healthy, and another may support it."""

    code = code_pb2.UNIMPLEMENTED
    reason = "NOT_SUPPORTED"


class Misconfigured(ServiceError):
    """A backend is misconfigured: retries fail until the operator has corrected it."""

    code = code_pb2.FAILED_PRECONDITION
    reason = "MISCONFIGURED"


class Unavailable(ServiceError):
    """Broken or not reachable; a retry may succeed."""

    code = code_pb2.UNAVAILABLE
    reason = "UNAVAILABLE"
    retryable = True


class Starting(Unavailable):
    """A service is not ready, because its model loads. Not a failure; another replica may be ready."""

    reason = "STARTING"


class Faulty(ServiceError):
    """A service failed on this request. Counts as its failure, and the request is sent to no other replica or model: it
    might break them one after the other."""

    reason = "FAULTY"


def shorten(text: str, limit: int = 80) -> str:
    """`text`, or its beginning and its length in characters when it is longer than `limit`."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
