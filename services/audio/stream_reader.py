"""A stream's client side: reads it without pause while the model works, up to the limits of a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from hedgerow.audio.v1 import audio_pb2
from services.audio.audio_buffer import Inbox
from services.audio.errors import Idle
from services.audio.frames import Frames
from services.runtime.errors import InvalidInput

Requests = AsyncIterator[audio_pb2.TranscribeStreamRequest]


class AudioReader:
    """Brings a client's audio into an inbox, until the client is done or an error ends it."""

    def __init__(self, frames: Frames, inbox: Inbox, max_stream_s: float, idle_timeout_s: float):
        self._frames, self._inbox = frames, inbox
        self._max_stream_s, self._idle_timeout_s = max_stream_s, idle_timeout_s

    async def run(self, first: bytes, requests: Requests) -> None:
        """Ends the inbox, with the error if there was one: what was heard until then still counts."""
        error: Exception | None = None
        try:
            async with asyncio.timeout(self._max_stream_s) as whole:
                await self._read(first, requests)
        except TimeoutError:
            error = self._too_long("of time") if whole.expired() else self._idle()
        except Exception as caught:  # the server of the stream raises it
            error = caught
        finally:
            self._inbox.end(error)

    async def _read(self, first: bytes, requests: Requests) -> None:
        data: bytes | None = first
        while data is not None and not self._inbox.ended:
            await self._put(data)
            async with asyncio.timeout(self._idle_timeout_s):
                data = await _next_audio(requests)
        await self._inbox.put(self._frames.flush())

    async def _put(self, data: bytes) -> None:
        await self._inbox.put(self._frames.push(data))
        if self._inbox.taken_s > self._max_stream_s:
            raise self._too_long("of audio")

    def _too_long(self, what: str) -> InvalidInput:
        return InvalidInput("audio", f"at most {self._max_stream_s:g} s {what} in a stream", "more")

    def _idle(self) -> Idle:
        limit = f"{self._idle_timeout_s:g} s"
        return Idle(f"audio: some at least every {limit}, got none", limit=limit)


async def _next_audio(requests: Requests) -> bytes | None:
    """The next message's audio that is not empty; None when the client is done."""
    async for request in requests:
        if request.HasField("options"):
            raise InvalidInput("options", "only in the first message", "in a later one")
        if request.audio:
            return request.audio
    return None
