"""Events of a reply, read a little at a time."""

from __future__ import annotations

import asyncio

import pytest

from services.llm.providers.transport.reply import ProviderReply, ReplyLimits
from services.llm.providers.transport.sse import EventParser

BODY = b"\n" * 1_000_000 + b"data: a\n\n"


class Body:
    """A body that has come as a whole."""

    status, ended, headers = 200, False, {"content-type": "text/event-stream"}

    def __init__(self, body: bytes):
        self._left = [body]

    async def read(self) -> bytes:
        return self._left.pop() if self._left else b""

    async def drop(self) -> None:
        pass


async def test_other_work_has_its_turn_while_line_ends_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = [0]  # bytes since other work had its turn
    feed = EventParser.feed

    def counted(parser: EventParser, piece: bytes) -> list[str]:
        fed[-1] += len(piece)
        return feed(parser, piece)

    async def other_work() -> None:
        while True:
            fed.append(0)
            await asyncio.sleep(0)

    monkeypatch.setattr(EventParser, "feed", counted)
    working = asyncio.create_task(other_work())
    reply = ProviderReply(Body(BODY), ReplyLimits(1_000, 2_000_000))
    assert [event async for event in reply.events()] == ["a"]
    working.cancel()
    assert sum(fed) == len(BODY)
    assert max(fed) <= 16 * 1024
