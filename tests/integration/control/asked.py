"""A topology's services, and what a control plane says of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hedgerow.channel import open_channel
from hedgerow.control.v1 import control_pb2, control_pb2_grpc
from tests.forked import ServiceProcess

SERVING, NOT_SERVING, UNREACHABLE = (
    control_pb2.ENDPOINT_HEALTH_SERVING,
    control_pb2.ENDPOINT_HEALTH_NOT_SERVING,
    control_pb2.ENDPOINT_HEALTH_UNREACHABLE,
)
Echo = Callable[..., Awaitable[ServiceProcess]]
Topology = Callable[..., Path]


def service(*addresses: str, **settings: Any) -> dict[str, Any]:
    return {"endpoints": [{"address": address} for address in addresses], **settings}


@asynccontextmanager
async def asking(process: ServiceProcess) -> AsyncIterator[Callable[[], Awaitable[control_pb2.GetMeshResponse]]]:
    """GetMesh of a control plane."""
    async with open_channel(process.spec.address) as channel:
        stub: Any = control_pb2_grpc.ControlServiceStub(channel)

        async def mesh() -> control_pb2.GetMeshResponse:
            return await stub.GetMesh(control_pb2.GetMeshRequest(), timeout=20, wait_for_ready=True)

        yield mesh


def healths(mesh: control_pb2.GetMeshResponse) -> list[int]:
    return [endpoint.health for service in mesh.services for endpoint in service.endpoints]
