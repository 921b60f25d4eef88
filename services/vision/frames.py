"""The waiting place of a stream of frames: one frame wide, and the newest wins."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Opening:
    """How to look at the frames of a stream; None is for what its first message does not set."""

    model: str
    top_k: int | None


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame as it came. `data` is None when the message held none; `arrived` is on `time.perf_counter`'s scale."""

    id: int
    data: bytes | None
    arrived: float


class WaitingPlace:
    """A writer opens it, puts and closes; one reader gets. Used on one event loop."""

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
        """Take the place, from an older frame if need be."""
        self._dropped += self._frame is not None
        self._frame = Frame(id, data, time.perf_counter())
        self._changed.set()

    def close(self) -> None:
        """No frame will come any more; one that waits may still be got."""
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
