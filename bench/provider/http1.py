"""HTTP/1.1 as far as a provider needs it: requests one after another, answers in chunks."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from contextlib import aclosing
from http import HTTPStatus

from bench.provider.events import ANSWERED, APIS, MOVED, Answer, Api
from bench.provider.pages import page

_PAGE = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
_REDIRECT = b"HTTP/1.1 307 Moved\r\ncontent-length: 0\r\nlocation: %s\r\n\r\n" % ANSWERED.encode()
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


async def serve_http1(answer: Answer, reader: StreamReader, writer: StreamWriter) -> None:
    """Until the caller goes."""
    following = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
    try:
        while True:
            head = await following
            body = await reader.readexactly(_length(head))
            following = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
            path = head.split(b" ", 2)[1].decode()
            if api := APIS.get(path):
                await _unless_gone(asyncio.create_task(_answer(answer, api, writer)), following)
            elif path == MOVED:
                writer.write(_REDIRECT)
            else:
                status, content = page(path, body)
                writer.write(_PAGE % (status, HTTPStatus(status).phrase.encode(), len(content), content))
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def _length(head: bytes) -> int:
    fields = (line.partition(b":") for line in head.lower().split(b"\r\n"))
    return sum(int(value) for name, _, value in fields if name == b"content-length")


async def _answer(answer: Answer, api: Api, writer: StreamWriter) -> None:
    begun = False
    async with aclosing(answer(api)) as events:
        async for event in events:
            writer.write((b"" if begun else _HEAD) + b"%x\r\n" % len(event) + event + b"\r\n")
            await writer.drain()
            begun = True
    writer.write(b"0\r\n\r\n")


async def _unless_gone(answering: asyncio.Task[None], following: asyncio.Task[bytes]) -> None:
    """The caller sends nothing while it is answered: what ends `following` before that is its going."""
    try:
        await asyncio.wait((answering, following), return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            answering.result()
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
