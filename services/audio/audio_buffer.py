"""A stream's audio between its client and its listener: never much ahead of real time, and never much of it. It is
read without pause while the model works, up to the limits of a stream.

Audio that the listener has not fetched yet comes in one piece. A stream whose audio waits in large amounts waits too:
it reads nothing meanwhile, so gRPC's flow control stops the client.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import numpy as np

from hedgerow.audio.v1 import audio_pb2
from services.audio.errors import Idle
from services.audio.frames import Frames
from services.audio.speech import RATE, Audio
from services.runtime.errors import InvalidInput

Requests = AsyncIterator[audio_pb2.TranscribeStreamRequest]


class Inbox:
    """An asynchronous iterator over audio. `error`: why it ended, if not because the client was done."""

    def __init__(self, max_ahead_s: float, max_waiting_s: float):
        self._max_ahead_s, self._max_waiting = max_ahead_s, round(max_waiting_s * RATE)
        self._began: float | None = None
        self._pieces: list[Audio] = []
        self._waiting = self._taken = 0  # in samples
        self._changed = asyncio.Event()
        self.ended = False
        self.error: Exception | None = None

    @property
    def taken_s(self) -> float:
        """Seconds of all audio that was put in."""
        return self._taken / RATE

    async def put(self, audio: Audio) -> None:
        """Add audio; return when there is room for more. After the end, it is dropped."""
        if self.ended or not len(audio):
            return
        self._began = time.monotonic() if self._began is None else self._began
        self._pieces.append(audio)
        self._waiting += len(audio)
        self._taken += len(audio)
        self._changed.set()
        ahead_s = self.taken_s - (time.monotonic() - self._began) - self._max_ahead_s
        if ahead_s > 0:
            await asyncio.sleep(ahead_s)
        while self._waiting > self._max_waiting and not self.ended:
            self._changed.clear()
            await self._changed.wait()

    def end(self, error: Exception | None = None) -> None:
        """End the input. Audio in the buffer can still be read."""
        if not self.ended:
            self.ended, self.error = True, error
        self._changed.set()

    def __aiter__(self) -> Inbox:
        return self

    async def __anext__(self) -> Audio:
        while not self._pieces:
            if self.ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        audio = self._pieces[0] if len(self._pieces) == 1 else np.concatenate(self._pieces)
        self._pieces.clear()
        self._waiting = 0
        self._changed.set()
        return audio


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
