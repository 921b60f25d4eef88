"""A simulated ToolService: tools that do nothing, each in a chosen time. Measures the mesh, not a tool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc

from hedgerow.chat.v1 import chat_pb2
from hedgerow.tool.v1 import tool_pb2 as pb
from hedgerow.tool.v1 import tool_pb2_grpc


class SimulatedTools(tool_pb2_grpc.ToolServiceServicer):
    """`pauses_s`: how long each tool takes, by its name."""

    def __init__(self, pauses_s: Mapping[str, float]):
        self._pauses_s = pauses_s

    async def ListTools(self, request: pb.ListToolsRequest, context: Any) -> pb.ListToolsResponse:
        return pb.ListToolsResponse(
            tools=[pb.ToolDescription(tool=chat_pb2.Tool(name=name), idempotent=True) for name in self._pauses_s]
        )

    async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
        await asyncio.sleep(self._pauses_s[request.name])
        return pb.CallToolResponse(content=f"{request.name} is done.")


@asynccontextmanager
async def simulated_tools(pauses_s: Mapping[str, float]) -> AsyncIterator[str]:
    """Its address, on a free loopback port."""
    server = grpc.aio.server()
    register: Any = tool_pb2_grpc.add_ToolServiceServicer_to_server
    register(SimulatedTools(pauses_s), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)
