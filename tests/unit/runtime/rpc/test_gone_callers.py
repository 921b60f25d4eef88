"""A caller that is gone is no error of a service, although gRPC says so before it cancels the call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from grpc._cython import cygrpc  # type: ignore[attr-defined]
from prometheus_client import REGISTRY

from hedgerow.cache.v1 import cache_pb2
from services.runtime.rpc import gone_callers
from services.runtime.rpc.boundary import Method
from tests.unit.runtime.conftest import Log

WATCH = cache_pb2.DESCRIPTOR.services_by_name["CacheService"].methods_by_name["WatchInvalidations"]


class Context:
    """The context of a call whose connection is closed."""

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def time_remaining(self) -> None:
        return None

    def set_trailing_metadata(self, metadata: object) -> None: ...

    async def write(self, message: bytes) -> None:
        raise cygrpc.ExecuteBatchError('Failed "execute_batch"')


class Yielding:
    def __init__(self) -> None:
        self.ends: list[object] = []

    async def WatchInvalidations(self, request: Any, call: Any) -> AsyncIterator[Any]:
        yield cache_pb2.WatchInvalidationsResponse()

    def ended(self, name: str, seconds: float, error: Exception | None) -> None:
        self.ends.append(error)


class Sending(Yielding):
    async def WatchInvalidations(self, request: Any, call: Any, send: Any) -> None:  # type: ignore[override]
        await send(cache_pb2.WatchInvalidationsResponse())


@pytest.mark.parametrize("servicer", [Yielding(), Sending()])
async def test_a_message_to_a_caller_that_is_gone_ends_the_call_as_cancelled(
    servicer: Yielding, caplog: pytest.LogCaptureFixture
) -> None:
    method, before = Method(WATCH, {"hedgerow.cache.v1.CacheService": servicer}), _cancelled()
    with pytest.raises(asyncio.CancelledError):
        await method.server_stream(b"", Context())
    assert (_cancelled() - before, servicer.ends, caplog.records) == (1, [], [])


def _cancelled() -> float:
    labels = {"service": "hedgerow.cache.v1.CacheService", "method": "WatchInvalidations", "code": "CANCELLED"}
    return REGISTRY.get_sample_value("hedgerow_rpc_seconds_count", labels) or 0.0


@pytest.mark.parametrize(("error", "is_logged"), [(cygrpc.ExecuteBatchError("gone"), False), (ValueError(), True)])
def test_a_status_that_reaches_no_caller_is_not_in_the_log(log: Log, error: Exception, is_logged: bool) -> None:
    written = log("INFO")
    try:
        raise error
    except Exception:
        logging.getLogger(gone_callers.LOGGER).exception("raised by servicer method")
    assert ("ERROR" in written.getvalue()) is is_logged
