"""Errors of engines, as leaves of the one error tree."""

from __future__ import annotations

from typing import ClassVar

from services.runtime.errors import ContextExceeded, Exhausted, InvalidInput, Misconfigured, Starting, Unavailable


class EngineDown(Unavailable):
    """The engine died or cannot be reached."""

    reason = "ENGINE_DOWN"


class ProviderAway(EngineDown):
    """No connection to the provider, or a broken one."""


class ProviderNotReached(ProviderAway):
    """The connection is lost, and the request was not sent. The gateway waits for the provider to return."""

    reason = Starting.reason


class MalformedOutput(Unavailable):
    """The provider discards what the model wrote: a call of a tool, or an object, that does not parse. The provider is
    well, and the model may write another one."""


class EngineBusy(Exhausted):
    """The engine's queue is full, or the provider limits the rate."""

    reason = "ENGINE_BUSY"


class ProviderRefused(Misconfigured):
    """The provider rejects the credential, or its account is empty."""

    reason = "PROVIDER_REFUSED"


class ModelNotAtProvider(Misconfigured):
    """The provider has no such model, or nothing at that address."""

    reason = "MODEL_NOT_AT_PROVIDER"


class RequestRefused(InvalidInput):
    """The provider refused the request. `status` and `own` (JSON, empty if it is none) are the provider's, for callers
    of its API; `extras` are fields that it refuses as extra ones."""

    takes: ClassVar[str] = "what the provider takes"
    extras: frozenset[str] = frozenset()

    def __init__(self, field: str, said: str, status: int, own: str = "", extras: frozenset[str] = frozenset()):
        super().__init__(field, f"{self.takes} ({said})", f"HTTP {status}")
        self.status, self.own, self.extras = status, own, extras

    def include_provider_error(self, api: str) -> None:
        """Include the provider's own error, for a caller of `api`."""
        if self.own:
            self.metadata |= {"provider_api": api, "provider_status": str(self.status), "provider_error": self.own}


class ContentRefused(RequestRefused):
    """A filter of the provider has flagged the request's content."""

    reason = "CONTENT_REFUSED"
    takes = "content that passes the provider's filter"


class AnswerTooLarge(InvalidInput):
    """The provider's answer is larger than the limit. A retry would cost the same again."""

    reason = "ANSWER_TOO_LARGE"

    def __init__(self, most_bytes: int, field: str, advice: str):
        super().__init__(field, f"an answer of at most {most_bytes} bytes: {advice}", "more")


class ContextRefused(RequestRefused, ContextExceeded):
    """The provider refused the request because of its length. `said` is its message, with `limit` and `tokens`."""

    def __init__(self, said: str, limit: int | None, tokens: int | None, status: int, own: str = ""):
        ContextExceeded.__init__(self, said, limit, tokens)
        self.status, self.own = status, own


class BadEngineSettings(Exception):
    """An engine cannot start with these settings; the message, for the operator, names the wrong one."""
