"""Checks answers beside the event loop, one at a time: whatever a stranger's form asks for, all else waits for one
thread's turns at the interpreter and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from hedgerow.chat.v1 import chat_pb2
from services.gateway.form.matching import mismatch
from services.gateway.form.verdict import Mismatch, Unchecked

_Find = Callable[[chat_pb2.ResponseFormat, str, float], Mismatch | None]
Beside = Callable[[_Find, chat_pb2.ResponseFormat, str, float], Awaitable[Mismatch | None]]


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "form")


async def _in_thread(find: _Find, wanted: chat_pb2.ResponseFormat, text: str, most_s: float) -> Mismatch | None:
    return await asyncio.get_running_loop().run_in_executor(_thread(), find, wanted, text, most_s)


class Forms:
    """A check takes `most_ms` of processor time at the most, and no answer waits longer for it than it says."""

    def __init__(self, most_ms: float = 200, beside: Beside = _in_thread):
        self._most_s, self._beside = most_ms / 1000, beside

    async def mismatch(self, wanted: chat_pb2.ResponseFormat, text: str, within_s: float) -> Mismatch | None:
        """Why `text` does not match; None where it does. Raises `Unchecked`."""
        try:
            async with asyncio.timeout(within_s):
                return await self._beside(mismatch, wanted, text, self._most_s)
        except TimeoutError:
            raise Unchecked("there was no time to check it") from None
