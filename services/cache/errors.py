"""Errors of the cache, as leaves of the one error tree, and reasons to refuse a start."""

from __future__ import annotations

from typing import ClassVar

from google.rpc import code_pb2

from services.runtime.errors import Exhausted, Missing, ServiceError, TooLate, Unavailable

_COME_BACK_S = 1.0


class EmbeddingTooLate(TooLate):
    """There is no exact answer, and the deadline passed before the question was embedded."""

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


class VerdictNotKept(Unavailable):
    """The shared store does not answer: an entry that was reported is what it was, and other replicas serve it."""

    reason: ClassVar[str] = "VERDICT_NOT_KEPT"

    def __init__(self) -> None:
        super().__init__(
            "the shared store does not answer, so nothing came of the report: repeat it until it succeeds",
            retry_delay_s=_COME_BACK_S,
        )


class Conflict(ServiceError):
    """Since the answer was begun its entry or its tenant was invalidated, here or elsewhere: it was not stored."""

    code: ClassVar[int] = code_pb2.ABORTED
    reason: ClassVar[str] = "OVERTAKEN"  # callers know it by this

    def __init__(self) -> None:
        super().__init__("the entry or its tenant was invalidated since the answer was begun")


class CollectionFull(Exhausted):
    """A limit of the collection, of its tenant or of all collections would be exceeded."""

    reason: ClassVar[str] = "COLLECTION_FULL"

    def __init__(self, what: str, limit: str, value: int):
        """`collection docs: at most 10000 documents, got 10001`."""
        super().__init__(f"{what}: {limit}, got {value}", limit=limit, value=str(value))


class NoCollection(Missing):
    """The tenant has no collection of that name; other tenants' collections are not revealed."""

    reason: ClassVar[str] = "NO_COLLECTION"

    def __init__(self, name: str) -> None:
        super().__init__(f"collection: there is no {name}", collection=name)


class Dropped(ServiceError):
    """The collection was dropped while a document was put into it: nothing of it was kept."""

    code: ClassVar[int] = code_pb2.ABORTED
    reason: ClassVar[str] = "DROPPED"

    def __init__(self) -> None:
        super().__init__("the collection was dropped since the document was sent")


class FellBehind(Exhausted):
    """A watcher reads more slowly than entries are removed: its copies are void, and it may watch again."""

    reason: ClassVar[str] = "FELL_BEHIND"


class DatabaseRefused(Exception):
    """The database file is not ours, damaged, newer than this version, or in use. It was left as it is."""
