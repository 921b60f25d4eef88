"""Work on a request that may be large, where it delays no other request.

Small work is done at once. Medium work, and each piece of longer work (`give_way`), has a turn of the event loop of its
own, and tenants take turns. Between two turns the event loop does all that is ready, and all that this makes ready: a
small call takes some 40 steps of the event loop, and with a piece of 0.4 ms before each of them it took 20 ms.

Large work is done beside the event loop. One thread does it all: several would keep the interpreter from the event loop
for longer. Tenants take turns at it, or the large request of one would wait for all those of another. Objects of JSON
have no cycles, and to look for some among 100,000 of them takes 60 ms in one go. So Python does not look meanwhile, and
work that frees its objects before it ends leaves none to look at.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from traceback import clear_frames
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from services.runtime.errors import TooLate
from services.runtime.policy.fair_slots import FairTurns
from services.runtime.policy.fair_thread import FairThread

T = TypeVar("T")
LARGE_BYTES = 65_536  # of small objects: some 10 ms. A text of less than 1 MiB costs next to nothing
MEDIUM_BYTES = 8_192  # likewise: some 1 ms
_OBJECT_BYTES, _VALUE_BYTES = 64, 8
_COUNTED_BYTES, _SAMPLES = 262_144, 64  # of a longer body so many parts are counted: to count 1 MiB takes 3 ms
_LONG_BYTES = 1_048_576  # a body that is large whatever is in it
_QUIET_S = 0.00005  # a turn of the event loop that takes longer did something
_MOST_S = 0.002  # that work waits for others which always have something to do
_MAX_WAITING = 10_000
_thread = FairThread("large requests", _MAX_WAITING)
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, FairTurns] = WeakKeyDictionary()


def size_of(objects: int) -> int:
    """The size of a number of JSON objects, or messages of a request, for `aside`. Only their number counts."""
    return objects * _OBJECT_BYTES


def size_of_text(length: int) -> int:
    """The size of texts of so many characters: those of 1 MiB are large, because some steps take each in one go."""
    return length * LARGE_BYTES // _LONG_BYTES


def size_of_conversation(messages: Sequence[Any], tools: Sequence[Any] = ()) -> int:
    """The size of the messages of a request, with their parts and calls: a message may have hundreds. And of its tools,
    whose schemas are parsed."""
    size = size_of(len(messages)) + sum(len(tool.parameters) for tool in tools)
    if size > LARGE_BYTES:
        return size
    return size + size_of(sum(len(message.parts) + len(message.tool_calls) for message in messages))


def size_in(body: bytes) -> int:
    """The size of a JSON body: its objects, and the values in its arrays. Commas in texts count, too; in a body of 256
    KiB they are too few to matter. An estimate for a longer body."""
    if len(body) <= _COUNTED_BYTES:
        return size_of(body.count(b"{")) + (body.count(b",") + body.count(b"[")) * _VALUE_BYTES
    part, step = _COUNTED_BYTES // _SAMPLES, len(body) // _SAMPLES
    parts = b"".join(body[at : at + part] for at in range(0, len(body), step))
    size = size_in(parts[:_COUNTED_BYTES]) * len(body) // _COUNTED_BYTES
    return max(size, LARGE_BYTES + 1) if len(body) > _LONG_BYTES else size


async def aside(tenant: str, size: int, work: Callable[[], T], within_s: float | None = None) -> T:
    """The result of `work` on about `size` bytes of a tenant's, which does not keep the event loop for long. Raises
    `Exhausted` where 10,000 large ones wait, and `TooLate` for a large one that is not done `within_s` seconds."""
    if size > LARGE_BYTES:
        try:
            async with asyncio.timeout(within_s):
                return await _thread.run(tenant, partial(_yielding, work))
        except TimeoutError:
            raise TooLate("no time is left: the request is large, and others were read before it") from None
    if size > MEDIUM_BYTES:
        await give_way(tenant)
    return work()


async def give_way(tenant: str = "", weight: float = 1.0) -> None:
    """Before a piece of work that the event loop does at once: let it do all else first. Of all such pieces of all
    tenants it does one between two times that it has nothing else to do, or 2 ms at most. An empty name stands for all
    tenants together."""
    loop = asyncio.get_running_loop()
    turns = _turns.get(loop) or _turns.setdefault(loop, FairTurns())
    await turns.begin(tenant, weight)
    try:
        await _quiet()
    finally:
        loop.call_soon(turns.ended)  # once the piece is done


async def _quiet() -> None:
    """Wait for a turn of the event loop in which it had nothing to do."""
    now = time.perf_counter()
    until = now + _MOST_S
    while True:
        since = now
        await asyncio.sleep(0)
        now = time.perf_counter()
        if now - since < _QUIET_S or now > until:
            return


def _yielding(work: Callable[[], T]) -> T:
    with _without_collection():
        try:
            return work()
        except BaseException as error:
            clear_frames(error.__traceback__)  # whose variables hold all that was made of a refused request
            raise


@contextmanager
def _without_collection() -> Iterator[None]:
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
