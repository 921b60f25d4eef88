"""HTTP/2 as far as a provider needs it: any number of answers at once on a connection."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from contextlib import aclosing

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import ProtocolError

from bench.provider.events import ANSWERED, CHAT, MOVED, Answer
from bench.provider.faults import Died, reset
from bench.provider.pages import page

_REDIRECT = ((":status", "307"), ("location", ANSWERED))
_HEAD = ((":status", "200"), ("content-type", "text/event-stream"))


async def serve_http2(answer: Answer, reader: StreamReader, writer: StreamWriter) -> None:
    """Until the caller goes, or an answer dies."""
    connection = _Connection(answer, writer)
    try:
        await connection.read(reader)
    finally:
        await connection.stop()


class _Connection:
    def __init__(self, answer: Answer, writer: StreamWriter):
        self._events, self._writer = answer, writer
        self._h2 = H2Connection(H2Configuration(client_side=False))
        self._answers: dict[int, asyncio.Task[None]] = {}
        self._paths: dict[int, str] = {}
        self._bodies: dict[int, bytes] = {}
        self._room = asyncio.Event()  # the caller takes more bytes than before

    async def read(self, reader: StreamReader) -> None:
        self._h2.initiate_connection()
        self._flush()
        while data := await reader.read(65_536):
            for event in self._h2.receive_data(data):
                self._handle(event)
            self._flush()

    async def stop(self) -> None:
        for task in self._answers.values():
            task.cancel()
        await asyncio.gather(*self._answers.values(), return_exceptions=True)

    def _handle(self, event: events.Event) -> None:
        match event:
            case events.RequestReceived(stream_id=int(stream), headers=list(headers)):
                self._paths[stream], self._bodies[stream] = dict(headers)[b":path"].decode(), b""
            case events.DataReceived(data=bytes(data), flow_controlled_length=int(length), stream_id=int(stream)):
                self._bodies[stream] += data
                self._h2.acknowledge_received_data(length, stream)
            case events.StreamEnded(stream_id=int(stream)):
                path, body = self._paths.pop(stream), self._bodies.pop(stream)
                if path == ANSWERED:
                    self._answers[stream] = asyncio.create_task(self._answer(stream))
                elif path == MOVED:
                    self._h2.send_headers(stream, _REDIRECT, end_stream=True)
                else:
                    status, content = page(path, body)
                    self._h2.send_headers(stream, ((":status", str(status)), ("content-type", "application/json")))
                    self._h2.send_data(stream, content, end_stream=True)
            case events.StreamReset(stream_id=int(stream)) if stream in self._answers:
                self._answers.pop(stream).cancel()
            case events.WindowUpdated():
                self._room.set()
            case _:
                pass

    async def _answer(self, stream: int) -> None:
        begun = False
        try:
            async with aclosing(self._events(CHAT)) as answer:
                async for event in answer:
                    if not begun:
                        self._h2.send_headers(stream, _HEAD)
                        begun = True
                    await self._send(stream, event)
            self._h2.end_stream(stream)
            self._flush()
        except Died:
            reset(self._writer)
        except ProtocolError:
            pass  # the caller has gone, and this task hears of it before it is cancelled
        finally:
            self._answers.pop(stream, None)

    async def _send(self, stream: int, data: bytes) -> None:
        while data:
            if not (room := min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size)):
                self._room.clear()
                await self._room.wait()
                continue
            self._h2.send_data(stream, data[:room])
            data = data[room:]
            self._flush()
            await self._writer.drain()

    def _flush(self) -> None:
        self._writer.write(self._h2.data_to_send())
