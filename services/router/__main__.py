"""Runs the router: `python -m services.router`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from google.protobuf.descriptor import ServiceDescriptor

from hedgerow.router.v1 import router_pb2
from services.router.config import RouterSettings
from services.router.servicer import RouterServicer
from services.router.shared import SharedObservations
from services.router.table import Table
from services.runtime.digest import SLICES
from services.runtime.process import serve
from services.runtime.shared_state import SharedStateLost, connected

_SERVICE = router_pb2.DESCRIPTOR.services_by_name["RouterService"]


@asynccontextmanager
async def assemble(settings: RouterSettings) -> AsyncIterator[Mapping[ServiceDescriptor, RouterServicer]]:
    table = Table(settings.models, settings.window_s)
    if not settings.redis_url:
        yield {_SERVICE: _servicer(settings, table)}
        return
    async with connected(settings.redis_url, settings.redis_timeout_ms / 1000) as state, asyncio.TaskGroup() as group:
        shared = SharedObservations(state, settings.window_s, lambda request, age_s: servicer.take(request, age_s))
        servicer = _servicer(settings, table, shared.publish)
        with suppress(SharedStateLost):  # then it starts with an empty window, as a single router does
            await shared.catch_up()
        running = group.create_task(shared.run())
        yield {_SERVICE: servicer}
        running.cancel()


def _servicer(
    settings: RouterSettings, table: Table, *publish: Callable[[router_pb2.ObserveRequest], None]
) -> RouterServicer:
    return RouterServicer(table, settings.publish_interval_ms / 1000, settings.window_s / SLICES, *publish)


SERVICE = serve.Service("router", RouterSettings, [_SERVICE], assemble)

if __name__ == "__main__":
    serve.main(*SERVICE)
