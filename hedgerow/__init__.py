"""Answers from a Hedgerow gateway, streamed, under an explicit time budget.

    import hedgerow

    with hedgerow.Client() as client:
        answer = client.ask("What is the capital of France?", budget_ms=300, on_token=print)
        print(answer.finish_reason, answer.cache.verdict, answer.timings.first_token_ms)

The clients are imported when first used: they bring gRPC, which takes longer to load than the rest of a small program.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hedgerow._errors import (
    Cancelled,
    DeadlineExceeded,
    HedgerowError,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from hedgerow._events import (
    Accepted,
    Answer,
    CacheReport,
    Decision,
    Event,
    Final,
    Patch,
    PlannedStage,
    StageReport,
    TextDelta,
    Timings,
    Usage,
)
from hedgerow._options import Message, Options, Request

if TYPE_CHECKING:
    from hedgerow._aio import AsyncAnswerStream, AsyncClient
    from hedgerow._client import AnswerStream, Client

__all__ = [
    "Accepted",
    "Answer",
    "AnswerStream",
    "AsyncAnswerStream",
    "AsyncClient",
    "CacheReport",
    "Cancelled",
    "Client",
    "DeadlineExceeded",
    "Decision",
    "Event",
    "Final",
    "HedgerowError",
    "Internal",
    "InvalidArgument",
    "Message",
    "NotFound",
    "Options",
    "Patch",
    "PermissionDenied",
    "PlannedStage",
    "Request",
    "ResourceExhausted",
    "StageReport",
    "TextDelta",
    "Timings",
    "Unauthenticated",
    "Unavailable",
    "Usage",
]

_LAZY = {"AnswerStream": "_client", "AsyncAnswerStream": "_aio", "AsyncClient": "_aio", "Client": "_client"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    return value
