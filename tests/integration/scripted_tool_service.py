"""A scripted service of `hedgerow.tool.v1`: each tool gives a scripted answer, after a pause or an event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.tool.v1 import tool_pb2 as pb
from hedgerow.tool.v1 import tool_pb2_grpc
from tests.integration.scripted import Scripted, serving


class ScriptedToolService(Scripted, tool_pb2_grpc.ToolServiceServicer):
    """`says`: the result of each tool, and after how many seconds or after what. To another tenant than `only` it has
    none."""

    def __init__(self) -> None:
        super().__init__()
        self.says: dict[str, tuple[float | Callable[[], Awaitable[object]], pb.CallToolResponse]] = {}
        self.only = ""

    async def ListTools(self, request: pb.ListToolsRequest, context: Any) -> pb.ListToolsResponse:
        self._meet(context)
        if self.only and self.metadata["x-hedgerow-tenant"] != self.only:
            return pb.ListToolsResponse()
        return pb.ListToolsResponse(
            tools=[
                pb.ToolDescription(tool=chat_pb2.Tool(name=name), question_argument="query", idempotent=True)
                for name in self.says
            ]
        )

    async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
        self._meet(context)
        self.requests.append(request)
        pause, result = self.says[request.name]
        with self._noting_cancellation():
            await (pause() if callable(pause) else asyncio.sleep(pause))
        return result


@asynccontextmanager
async def serve_tools() -> AsyncIterator[ScriptedToolService]:
    """On a free loopback port; its `target` says which."""
    async with serving(ScriptedToolService(), tool_pb2_grpc.add_ToolServiceServicer_to_server) as tools:
        yield tools
