"""A scripted model that calls tools, a gateway before it, and the tools that the gateway has listed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hedgerow import AsyncClient
from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2, llm_pb2_grpc
from tests.conftest import Start
from tests.integration.scripted import Scripted, serving
from tests.integration.scripted_llm import end, words
from tests.waiting import until

QUESTION = "What is the weather?"


class CallingLlm(Scripted, llm_pb2_grpc.LLMServiceServicer):
    """Calls what `wants` says where it may call tools and has no result yet; else it answers after a pause."""

    def __init__(self) -> None:
        super().__init__()
        self.wants: list[tuple[str, dict[str, Any]]] = []
        self.first_s = self.pause_s = 0.0  # before the first words, and between them
        self.awaited = False  # an answer has its first words only when something waits for them in `begins`
        self._waiting = asyncio.Queue[asyncio.Event]()

    async def begins(self) -> None:
        """Return when the next answer that is `awaited` has its first word."""
        await self._waiting.put(begun := asyncio.Event())
        await begun.wait()

    def forget_waiting(self) -> None:
        """Clear `begins`: its waiting calls were cancelled before an answer."""
        self._waiting = asyncio.Queue()

    async def Generate(self, request: llm_pb2.GenerateRequest, context: Any) -> AsyncIterator[Any]:
        self.requests.append(request)
        results = any(message.role == chat_pb2.ROLE_TOOL for message in request.messages)
        if request.tools and not results:
            for index, (name, arguments) in enumerate(self.wants):
                call = chat_pb2.ToolCallDelta(index=index, id=f"c{index}", name=name, arguments=json.dumps(arguments))
                yield llm_pb2.GenerateResponse(tool_calls=[call], tokens=1)
            yield end("TOOL_CALLS")
            return
        await asyncio.sleep(self.first_s)
        begun = await self._waiting.get() if self.awaited else asyncio.Event()
        for message in words("It ", "rains"):
            yield message
            begun.set()
            await asyncio.sleep(self.pause_s)
        yield end(text=".", tokens=1)

    @property
    def read(self) -> str:
        """The last message of the last prompt."""
        return self.requests[-1].messages[-1].content


@asynccontextmanager
async def calling_llm() -> AsyncIterator[CallingLlm]:
    async with serving(CallingLlm(), llm_pb2_grpc.add_LLMServiceServicer_to_server) as llm:
        yield llm


async def start_gateway(start: Start, llm: CallingLlm, sources: dict[str, Any], **settings: Any) -> str:
    """The address of a gateway that has listed the tools of its sources."""
    tools = {"sources": sources, **settings.pop("tools", {})}
    process = await start(
        "gateway",
        llm_addresses=json.dumps({"m": llm.target}),
        cache_address="",
        router_address="",
        tools=json.dumps(tools),
        **settings,
    )
    return process.spec.address


async def listed(client: AsyncClient, *names: str) -> None:
    """Return when these tools can be called."""
    await until(client.tools, holds=lambda value: {tool.name for tool in value[0]} >= set(names))
