"""Both sides of a standing stream, and a wire between them on which messages move when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from hedgerow.llm.v1 import llm_pb2
from services.runtime.rpc.authorization import anyone
from services.runtime.rpc.boundary import methods_by_path
from services.runtime.rpc.standing.calling import OpenCalls, StandingCall
from services.runtime.rpc.standing.frames import Outgoing, read_frames
from services.runtime.rpc.standing.serving import ServedCalls
from tests.unit.runtime.rpc.transports import SERVICES, Scripted
from tests.waiting import until

GENERATE, COUNT = "/hedgerow.llm.v1.LLMService/Generate", "/hedgerow.llm.v1.LLMService/CountTokens"
Frame = tuple[int, int, bytes]


def message(kind: int, number: int = 0, payload: bytes = b"") -> bytes:
    outgoing = Outgoing()
    outgoing.put(kind, number, payload)
    return outgoing.message()


class Stream:
    """The context of the stream's own call."""

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"peer_spiffe_id": [b"spiffe://hedgerow/gateway"]}


class Wire:
    """`calls` are the caller's, `served` the server's."""

    def __init__(self, service: Scripted, most_calls: int = 16):
        methods = methods_by_path(SERVICES, {each.full_name: service for each in SERVICES}, anyone)
        self.calls, self.served = OpenCalls(), ServedCalls(methods, Stream(), most_calls)

    def up(self) -> list[Frame]:
        """Move what the caller has to send."""
        return self._move(self.calls, self.served)

    def down(self) -> list[Frame]:
        """Move what the server has to send."""
        return self._move(self.served, self.calls)

    def open(self, path: str = GENERATE, timeout_s: float | None = 30.0, **fields: Any) -> StandingCall:
        request = llm_pb2.GenerateRequest(**fields).SerializeToString()
        call = self.calls.open(path, request, timeout_s, (), bytes)
        assert call
        return call

    @asynccontextmanager
    async def moving(self) -> AsyncIterator[None]:
        """All messages move as soon as they can."""

        async def move() -> None:
            while True:
                self.up()
                self.down()
                await asyncio.sleep(0)

        task = asyncio.create_task(move())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def settled(self) -> list[Frame]:
        """Move messages until each call has had its END; returns the server's frames."""
        found = list[Frame]()

        def over() -> bool:
            self.up()
            found.extend(self.down())
            return self.calls.is_empty and self.served.is_empty

        await until(over, 5)
        return found

    async def end(self) -> None:
        """The server's side ends as with its stream."""
        await asyncio.gather(*self.served.stop(), return_exceptions=True)

    def _move(self, sender: OpenCalls | ServedCalls, receiver: OpenCalls | ServedCalls) -> list[Frame]:
        found = list[Frame]()
        while message := sender.outgoing.message():
            found += read_frames(message)
            receiver.receive(message)
        return found


async def outcome(call: StandingCall) -> tuple[list[bytes], grpc.StatusCode, str]:
    """All replies of a call, and its status."""
    replies = list[bytes]()
    try:
        while (reply := await call.read()) is not grpc.aio.EOF:
            replies.append(reply)
    except grpc.aio.AioRpcError as error:
        return replies, error.code(), error.details() or ""
    return replies, grpc.StatusCode.OK, ""
