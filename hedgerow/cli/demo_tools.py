"""The demo's tools: a service of `hedgerow.tool.v1` whose tools are slow on purpose and know one thing each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from hedgerow.chat.v1 import chat_pb2
from hedgerow.tool.v1 import tool_pb2 as pb
from hedgerow.tool.v1 import tool_pb2_grpc

CALL_MS = 250  # as long as the demo's answers wait for one
GUIDE_NAME = "animals.md"
GUIDE = """# A field guide

## The fox

It is awake at dusk and at dawn, lives in a den near water, and is seldom seen twice in one place.

## The owl

It hears a mouse under the snow, and flies without a sound.
"""
_ARGUMENTS = '{"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}'
# What each says, where it comes from, and after how many seconds.
_TOOLS = {
    "demo_almanac": (0.15, "Foxes are awake at dusk and at dawn.", "almanac.txt"),
    "demo_archive": (0.32, "A fox was last seen on this hill in May.", "archive/may.txt"),
}


class DemoTools(tool_pb2_grpc.ToolServiceServicer):
    """Says what it knows, whatever it is asked."""

    async def ListTools(self, request: pb.ListToolsRequest, context: Any) -> pb.ListToolsResponse:
        return pb.ListToolsResponse(
            tools=[
                pb.ToolDescription(
                    tool=chat_pb2.Tool(name=name, description="Looks a question up, slowly.", parameters=_ARGUMENTS),
                    idempotent=True,
                    question_argument="query",
                )
                for name in _TOOLS
            ]
        )

    async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
        pause_s, text, source = _TOOLS[request.name]
        await asyncio.sleep(pause_s)
        return pb.CallToolResponse(content=text, citations=[pb.Citation(source=source, text=text)])


@asynccontextmanager
async def serving_demo_tools() -> AsyncIterator[str]:
    """Its address, on a free loopback port."""
    server = grpc.aio.server()
    register: Any = tool_pb2_grpc.add_ToolServiceServicer_to_server
    register(DemoTools(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)
