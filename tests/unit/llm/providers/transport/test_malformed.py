"""Providers that break HTTP, over a real socket in this process, with their bytes cut at every position."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from services.llm.providers.transport import http1
from services.llm.providers.transport.client import ProviderClient
from services.llm.providers.transport.http1 import Http1
from services.llm.providers.transport.reply import ReplyLimits
from services.llm.providers.transport.wire import Broken, Options
from services.runtime.deadline import Deadline
from tests.waiting import until

_SLOTS, _READ_S = 3, 30
BROKEN = "broken"
A, B = b"data: a\n\n", b"data: b\n\n"


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n", extension: bytes = b"") -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x%s\r\n%s\r\n" % (len(chunk), extension, chunk) for chunk in chunks) + end


def sized(body: bytes, *headers: bytes) -> bytes:
    lines = (b"HTTP/1.1 200 OK", b"content-type: text/event-stream", b"content-length: %d" % len(body), *headers)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@dataclass
class Script:
    """Answers each request with the next of `answers`, in its pieces; after an answer in `closing` it closes."""

    answers: deque[Sequence[bytes]] = field(default_factory=deque)
    closes: bool = False
    serving: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.serving += 1
        await self._serve(reader, writer)
        writer.close()
        self.serving -= 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"{}")
                for piece in self.answers.popleft():
                    writer.write(piece)
                    for _ in range(3):  # so that it is read before the next
                        await asyncio.sleep(0)
                if self.closes:
                    break


@asynccontextmanager
async def asking(script: Script, read_s: float = _READ_S) -> AsyncIterator[tuple[ProviderClient, str]]:
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    options = Options(_SLOTS, connect_s=5, read_s=read_s, idle_s=60)
    client = ProviderClient(Http1(url, options), {}, _SLOTS, ReplyLimits(1_000, 10_000))
    try:
        yield client, url
        assert client._slots._value == _SLOTS
    finally:
        await client.close()
        server.close()
        await until(lambda: not script.serving, every_s=0)


async def asked(client: ProviderClient, url: str) -> list[str]:
    """The events that came, and `BROKEN` behind them where the answer broke off."""
    events: list[str] = []
    try:
        async with client.request("POST", url, Deadline.after(20), b"{}") as reply:
            async for event in reply.events():
                events.append(event)  # noqa: PERF401  # those before it breaks count
    except Broken:
        events.append(BROKEN)
    return events


WHOLE = {
    "in one chunk": (chunked(A + B), ["a", "b"]),
    "in two chunks": (chunked(A, B), ["a", "b"]),
    "with the extension of a chunk": (chunked(A, extension=b';name="value"'), ["a"]),
    "with a trailer": (chunked(A, end=b"0\r\nx-trailer: 1\r\n\r\n"), ["a"]),
    "with its length": (sized(A + B), ["a", "b"]),
    "after answers that are none yet": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + sized(A),
        ["a"],
    ),
    "with a byte order mark": (sized(b"\xef\xbb\xbf" + A + B), ["a", "b"]),
    "whose lines end by CR alone": (sized(b"data: a\r\rdata: b\r\r"), ["a", "b"]),
    "whose lines end by CR and LF": (sized(b"data: a\r\n\r\ndata: b\r\n\r\n"), ["a", "b"]),
    "in text of several bytes": (sized("data: für 漢字 🦔\n\n".encode()), ["für 漢字 🦔"]),
    "in what is no UTF-8": (sized(b"data: f\xfcr\xe2\x82\n\n" + B), ["f\ufffdr\ufffd", "b"]),
    "compressed, which nobody asked for": (sized(gzip.compress(A * 5_000), b"content-encoding: gzip"), [BROKEN]),
    "whose media type is in capitals": (
        sized(A).replace(b"text/event-stream", b"Text/Event-Stream; charset=UTF-8"),
        ["a"],
    ),
}
BREAKING = {
    "with a size of a chunk that is none": (chunked(A, end=b"ZZ\r\nxx\r\n"), False),
    "with a chunk that is longer than its size": (chunked(A, end=b"1\r\nxxxxx\r\n"), False),
    "that ends in mid-chunk": (chunked(A, end=b"ff\r\ndata"), True),
    "that ends between chunks": (chunked(A, end=b""), True),
    "that ends before its length": (sized(A + B)[: -len(B)], True),
}


@dataclass
class DyingScript(Script):
    """Answers the first requests, and takes its connection with every later one."""

    answered: int = 1
    requests: int = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"{}"):
                self.requests += 1
                if self.requests > self.answered:
                    break
                writer.write(sized(A))


@pytest.mark.parametrize("name", WHOLE)
async def test_an_answer_is_the_same_wherever_its_bytes_are_cut(name: str) -> None:
    answer, expected = WHOLE[name]
    script = Script(deque((answer[:at], answer[at:]) for at in range(1, len(answer))))
    async with asking(script) as (client, url):
        while script.answers:
            assert await asked(client, url) == expected


@pytest.mark.parametrize("name", BREAKING)
async def test_an_answer_that_breaks_off_is_noticed_at_once_wherever_its_bytes_are_cut(name: str) -> None:
    answer, closes = BREAKING[name]
    script = Script(deque((answer[:at], answer[at:]) for at in range(1, len(answer))), closes)
    async with asking(script) as (client, url), asyncio.timeout(20):
        while script.answers:
            assert await asked(client, url) in (["a", BROKEN], [BROKEN])


async def test_an_unrequested_second_answer_answers_no_other_request() -> None:
    answer, unasked = chunked(A), sized(b"data: of another\n\n")
    both = answer + unasked
    script = Script()
    async with asking(script) as (client, url):
        for at in range(len(answer) - 4, len(both)):
            script.answers.append((both[:at], both[at:]))
            assert await asked(client, url) == ["a"]
            for _ in range(6):
                await asyncio.sleep(0)
            script.answers.append((sized(B),))
            assert await asked(client, url) == ["b"]


async def test_a_provider_that_falls_silent_in_mid_answer_is_given_up() -> None:
    script = Script(deque([(chunked(A, end=b""),)]))
    async with asking(script, read_s=0.05) as (client, url):
        assert await asked(client, url) == ["a", BROKEN]


@pytest.mark.parametrize(("noticed_s", "requests"), [(60.0, 3), (0.0, 2)])
async def test_a_request_is_sent_again_where_its_connection_had_died_and_not_where_it_died_with_it(
    monkeypatch: pytest.MonkeyPatch, noticed_s: float, requests: int
) -> None:
    monkeypatch.setattr(http1, "_NOTICED_S", noticed_s)
    script = DyingScript()
    async with asking(script) as (client, url):
        assert await asked(client, url) == ["a"]
        assert await asked(client, url) == [BROKEN]
    assert script.requests == requests


async def test_a_request_that_ends_every_connection_is_sent_on_one_new_one_and_not_on_all_kept_ones() -> None:
    script = DyingScript(answered=_SLOTS)
    async with asking(script) as (client, url):
        assert await asyncio.gather(*(asked(client, url) for _ in range(_SLOTS))) == [["a"]] * _SLOTS
        assert script.serving == _SLOTS
        assert await asked(client, url) == [BROKEN]
        assert script.requests == _SLOTS + 2


@pytest.mark.parametrize("head", [b"\0\1garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nx: " + b"y" * 10_000])
async def test_a_head_that_is_none_is_said_in_words(head: bytes) -> None:
    async with asking(Script(deque([[head]]), closes=True)) as (client, url):
        with pytest.raises(Broken, match=r"the answer has no head of HTTP/1\.1, or one that is too long"):
            async with client.request("POST", url, Deadline.after(20), b"{}"):
                pass


async def said_through(proxy: str, url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The words of a request that cannot pass the proxy."""
    for scheme in ("http", "https"):
        monkeypatch.setenv(f"{scheme}_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    wire = Http1(url, Options(_SLOTS, connect_s=5, read_s=_READ_S, idle_s=60))
    with pytest.raises(Broken) as broken:
        await wire.send("GET", url, {}, b"")
    await wire.close()
    return str(broken.value)


async def test_a_proxy_that_is_away_or_refuses_is_named_in_the_place_of_the_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nothing listens
        away = f"http://127.0.0.1:{unused.getsockname()[1]}"
        said = await said_through(away, "http://provider.test/v1", monkeypatch)
    assert said == "proxy: connection refused"
    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        proxy = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await said_through(proxy, "https://provider.test/v1", monkeypatch) == "the proxy answered HTTP 407"
