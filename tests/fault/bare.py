"""A caller of `bench.bare_relay`, which shows what gRPC itself makes of a fault: what the gateway is compared with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2

_TIMEOUT_S = 40.0


class BareCaller:
    """A caller with one connection."""

    def __init__(self, channel: grpc.aio.Channel):
        self._generate: Any = channel.unary_stream("/hedgerow.llm.v1.LLMService/Generate")

    def start(self, text: str) -> Any:
        """Send a question; a call, which may be cancelled."""
        messages = [chat_pb2.Message(role=chat_pb2.ROLE_USER, content=text)]
        return self._generate(llm_pb2.GenerateRequest(messages=messages).SerializeToString(), timeout=_TIMEOUT_S)

    async def ask(self, text: str) -> float:
        """Send a question and read its answer to the end; how many seconds that took."""
        began, call = time.monotonic(), self.start(text)
        while await call.read() is not grpc.aio.EOF:
            pass
        return time.monotonic() - began


@asynccontextmanager
async def asking_bare(address: str) -> AsyncIterator[BareCaller]:
    """A caller of the relay at `address`."""
    async with open_channel(address) as channel:
        await asyncio.wait_for(channel.channel_ready(), 10)
        yield BareCaller(channel)
