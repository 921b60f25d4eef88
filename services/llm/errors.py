"""What can go wrong with an engine, as leaves of the one error tree."""

from __future__ import annotations

from typing import ClassVar

from google.rpc import code_pb2

from services.runtime.errors import Exhausted, ServiceError, Unavailable


class EngineDown(Unavailable):
    """The engine died or cannot be reached."""

    reason = "ENGINE_DOWN"


class EngineBusy(Exhausted):
    """The engine's queue is full, or the provider limits our rate."""

    reason = "ENGINE_BUSY"


class ProviderRefused(ServiceError):
    """The provider does not accept our credential: for the operator to mend, so another try is of no use."""

    code: ClassVar[int] = code_pb2.FAILED_PRECONDITION
    reason = "PROVIDER_REFUSED"


class BadEngineSettings(Exception):
    """An engine cannot start with these settings; the message, for the operator, names the one at fault."""
