"""The one waiting frame of a stream: a newer frame replaces it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Opening:
    """The options of a stream; None where its first message does not set one."""

    model: str
    top_k: int | None


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame as it came. `data` is None when the message held none; `arrived` is on `time.perf_counter`'s scale."""

    id: int
    data: bytes | None
    arrived: float


class FrameSlot:
    """Holds the newest frame. A writer opens it, puts frames and closes it; one reader gets them. On one event loop."""

    def __init__(self) -> None:
        self._opening: Opening | None = None
        self._frame: Frame | None = None
        self._dropped, self._closed = 0, False
        self._changed = asyncio.Event()

    def open(self, opening: Opening) -> None:
        """The first message has come."""
        self._opening = opening
        self._changed.set()

    @property
    def is_open(self) -> bool:
        return self._opening is not None

    async def opened(self) -> Opening | None:
        """The options of the first message; None when none will come."""
        while not self._opening and not self._closed:
            await self._change()
        return self._opening

    def put(self, id: int, data: bytes | None) -> None:
        """Put a frame, in place of one that still waits."""
        self._dropped += self._frame is not None
        self._frame = Frame(id, data, time.perf_counter())
        self._changed.set()

    def close(self) -> None:
        """No more frames will come; a waiting one may still be read."""
        self._closed = True
        self._changed.set()

    async def get(self) -> Frame | None:
        """The newest frame, as soon as there is one; None when no more will come."""
        while not self._frame and not self._closed:
            await self._change()
        frame, self._frame = self._frame, None
        return frame

    def dropped(self) -> int:
        """How many were dropped since the last call."""
        dropped, self._dropped = self._dropped, 0
        return dropped

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
