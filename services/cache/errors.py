"""What the cache tells its callers, as leaves of the one error tree, and why it may refuse to start."""

from __future__ import annotations

from typing import ClassVar

from google.rpc import code_pb2

from services.runtime.errors import Exhausted, ServiceError, TooLate, Unavailable


class EmbeddingTooLate(TooLate):
    """There is no exact answer, and the time was over before the question was embedded."""

    reason: ClassVar[str] = "EMBEDDING_TOO_LATE"


class NotKept(Unavailable):
    """The disk refused a write: the entry is not served either. Or a removal is made here, and there is no room to
    remember it for the Redis that is away."""

    reason: ClassVar[str] = "NOT_KEPT"


class Overtaken(ServiceError):
    """Since the answer was begun its entry or its tenant was invalidated, here or elsewhere: it was not stored."""

    code: ClassVar[int] = code_pb2.ABORTED
    reason: ClassVar[str] = "OVERTAKEN"

    def __init__(self) -> None:
        super().__init__("the entry or its tenant was invalidated since the answer was begun")


class FellBehind(Exhausted):
    """A watcher reads more slowly than entries are removed: its copies are void, and it may watch again."""

    reason: ClassVar[str] = "FELL_BEHIND"


class DatabaseRefused(Exception):
    """The database file is not ours, damaged, newer than this version, or in use. It was left as it is."""
