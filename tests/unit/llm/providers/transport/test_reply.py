"""Events of a reply: server-sent events, found in whatever pieces a body comes, and read a little at a time."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.llm.providers.transport.reply import EventParser, ProviderReply, ReplyLimits
from services.llm.providers.transport.wire import TooLong

STREAM = (
    ": a comment\r\n\r\ndata: one\n\nevent: name\r\ndata: two\r\ndata:  lines\r\n\r\n\rid: 7\rdata:three\r\r"
    "data: für\n\ndata\n\ndata: never ended"
).encode()
EVENTS = ["one", "two  lines", "three", "für"]


def parsed(pieces: list[bytes], limit: int = 1_000) -> list[str]:
    parser = EventParser(limit)
    return [event for piece in pieces for event in parser.feed(piece)]


@given(st.sets(st.integers(1, len(STREAM) - 1)))
def test_events_are_parsed_for_any_division_of_the_body(cuts: set[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert parsed([STREAM[start:end] for start, end in itertools.pairwise(edges)]) == EVENTS


def test_a_byte_order_mark_costs_no_event_and_stands_at_the_beginning_alone() -> None:
    mark = b"\xef\xbb\xbf"
    assert parsed([mark + b"data: one\n\n", b"data: two\n\n"]) == ["one", "two"]
    assert parsed([mark[:1], mark[1:] + b"data: one", b"\n\n"]) == ["one"]
    assert parsed([b"data: one\n\n", mark + b"data: two\n\n"]) == ["one"]


def test_an_event_whose_lines_end_by_cr_alone_comes_with_its_last_byte() -> None:
    parser = EventParser(1_000)
    assert [parser.feed(piece) for piece in (b"data: a\r", b"\r", b"data: b\r\r")] == [[], ["a"], ["b"]]


@pytest.mark.parametrize(
    "pieces",
    [
        [b"data: " + b"x" * 100 + b"\n\n"],
        [b"x" * 60, b"x" * 60],  # a line that never ends
        [b"data: 0123456789\n"] * 10,  # an event that never ends
    ],
)
def test_an_event_may_be_no_larger_than_the_limit(pieces: list[bytes]) -> None:
    with pytest.raises(TooLong, match="more than 100 bytes"):
        parsed(pieces, limit=100)


def test_the_limit_is_for_each_event_alone() -> None:
    assert len(parsed([b"data: 0123456789\n\n"] * 100, limit=20)) == 100


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
