"""Calls whose caller is gone with its connection: its process was killed, or its channel closed.

gRPC then cancels the task of the call, and fails what is being sent on it (`ExecuteBatchError`, grpcio 1.85). Sometimes
the failure comes first: of 240 calls whose clients were killed while messages waited for their windows, 4. It is no
error of the service: it looks like the cancellation that follows.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc

LOGGER = "grpc._cython.cygrpc"  # also reports at ERROR where the failure is that of the status at the end


async def write(context: Any, message: Any) -> None:
    """Write to a `grpc.aio.ServicerContext`. Raises `CancelledError` if the caller has left."""
    try:
        await context.write(message)
    except grpc.aio.InternalError:
        raise asyncio.CancelledError("the caller has left") from None


def is_other(record: logging.LogRecord) -> bool:
    """Whether a record of `LOGGER` is of something else, for its filter."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or kind.__name__ != "ExecuteBatchError"
