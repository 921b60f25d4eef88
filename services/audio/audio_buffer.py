"""A stream's audio between its client and its listener: never much ahead of real time, and never much of it.

Audio that the listener has not fetched yet comes in one piece. A stream whose audio waits in large amounts waits too:
it reads nothing meanwhile, so gRPC's flow control stops the client.
"""

from __future__ import annotations

import asyncio
import time

import numpy as np

from services.audio.speech import RATE, Audio


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
