"""A call that is refused is gone when it has ended, over a real connection: nothing of it waits for the collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status.rpc_status import aio as rpc_status

from hedgerow.cache.v1 import cache_pb2, cache_pb2_grpc
from services.runtime.errors import Exhausted
from services.runtime.rpc.boundary import Call
from tests.unit.runtime.served import served
from tests.waiting import until

SERVICE = cache_pb2.DESCRIPTOR.services_by_name["CacheService"]


class Busy:
    """Refuses everything. `made`: what was made of each request."""

    def __init__(self) -> None:
        self.made: list[weakref.ref[Any]] = []

    def _refuse(self) -> None:
        made = {1}
        self.made.append(weakref.ref(made))
        raise Exhausted("busy", retry_delay_s=1)

    async def Lookup(self, request: Any, call: Call) -> Any:
        self._refuse()

    async def WatchInvalidations(self, request: Any, call: Call) -> AsyncIterator[Any]:
        yield cache_pb2.WatchInvalidationsResponse()
        self._refuse()


@pytest.mark.parametrize("method", ["Lookup", "WatchInvalidations"])
async def test_nothing_is_left_of_a_call_that_was_refused(method: str) -> None:
    busy = Busy()
    async with served([SERVICE], {SERVICE.full_name: busy}) as (channel, _):
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                await _is_refused(cache_pb2_grpc.CacheServiceStub(channel), method)
            await until(lambda: len(busy.made) == 3 and not any(made() for made in busy.made), 5)
        finally:
            gc.enable()


async def _is_refused(stub: Any, method: str) -> None:
    if method == "Lookup":
        call = stub.Lookup(cache_pb2.LookupRequest())
    else:
        call = stub.WatchInvalidations(cache_pb2.WatchInvalidationsRequest())
        assert isinstance(await call.read(), cache_pb2.WatchInvalidationsResponse)
    assert (await call.code(), await call.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "busy")
    retry = error_details_pb2.RetryInfo()
    status = await rpc_status.from_call(call)
    assert any(detail.Unpack(retry) for detail in status.details)
    assert retry.retry_delay.seconds == 1
