"""Runs the router: `python -m services.router`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from google.protobuf.descriptor import ServiceDescriptor

from hedgerow.router.v1 import router_pb2
from services.router.config import RouterSettings
from services.router.servicer import RouterServicer
from services.router.table import Table
from services.runtime import serve
from services.runtime.digest import SLICES

_SERVICE = router_pb2.DESCRIPTOR.services_by_name["RouterService"]


@asynccontextmanager
async def assemble(settings: RouterSettings) -> AsyncIterator[Mapping[ServiceDescriptor, RouterServicer]]:
    table = Table(settings.models, settings.window_s)
    yield {_SERVICE: RouterServicer(table, settings.publish_interval_ms / 1000, settings.window_s / SLICES)}


if __name__ == "__main__":
    serve.main("router", RouterSettings, [_SERVICE], assemble)
