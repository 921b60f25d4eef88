"""What the cache tells its callers, as leaves of the one error tree, and why it may refuse to start."""

from __future__ import annotations

from typing import ClassVar

from google.rpc import code_pb2

from services.runtime.errors import Exhausted, ServiceError, TooLate, Unavailable

_COME_BACK_S = 1.0


class EmbeddingTooLate(TooLate):
    """There is no exact answer, and the time was over before the question was embedded."""

    reason: ClassVar[str] = "EMBEDDING_TOO_LATE"


class NotKept(Unavailable):
    """The disk refused a write: the entry is not served either."""

    reason: ClassVar[str] = "NOT_KEPT"


class NotRemoved(Unavailable):
    """The shared store does not answer: what was to be removed may be there still, and other replicas serve it."""

    reason: ClassVar[str] = "NOT_REMOVED"

    def __init__(self) -> None:
        super().__init__(
            "the shared store does not answer, so nothing counts as removed: repeat this until it succeeds",
            retry_delay_s=_COME_BACK_S,
        )


class Conflict(ServiceError):
    """Since the answer was begun its entry or its tenant was invalidated, here or elsewhere: it was not stored."""

    code: ClassVar[int] = code_pb2.ABORTED
    reason: ClassVar[str] = "OVERTAKEN"  # callers know it by this

    def __init__(self) -> None:
        super().__init__("the entry or its tenant was invalidated since the answer was begun")


class FellBehind(Exhausted):
    """A watcher reads more slowly than entries are removed: its copies are void, and it may watch again."""

    reason: ClassVar[str] = "FELL_BEHIND"


class DatabaseRefused(Exception):
    """The database file is not ours, damaged, newer than this version, or in use. It was left as it is."""
