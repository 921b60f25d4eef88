"""Work on a request that may be large, where it delays no other request.

Small work is done at once. Medium work, and each piece of longer work (`give_way`), has a turn of the event loop of its
own, and tenants take turns. Between two turns the event loop does all that is ready, and all that this makes ready: a
small call takes some 40 steps of the event loop, and with a piece of 0.4 ms before each of them it took 20 ms.

Large work is done beside the event loop, on two threads: one for what takes up to 10 ms, and one for huge work, which
the other would wait for. More would keep the interpreter from the event loop for longer. Tenants take turns at each.
Objects of JSON have no cycles, and to look for some among 100,000 of them takes 60 ms in one go. So Python does not
look during huge work, and work that frees its objects before it ends leaves none to look at.
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
HUGE_BYTES = 65_536  # of small objects: some 10 ms. A text of less than 1 MiB costs next to nothing
LARGE_BYTES = 16_384  # likewise: some 3 ms. Pieces of 10 ms on the event loop doubled the times of other tenants
MEDIUM_BYTES = 8_192  # likewise: some 1 ms
_OBJECT_BYTES, _VALUE_BYTES = 64, 8
_LONG_BYTES = 1_048_576  # a longer body is huge whatever is in it, and parts of it are counted: each MiB takes 0.4 ms
_SAMPLES, _SAMPLE_BYTES = 64, 512
NO_VALUES = bytes(set(range(256)) - set(b",[{"))  # to delete these takes a third of the time of counting three bytes
_QUIET_S = 0.00005  # a turn of the event loop that takes longer did something
_MOST_S = 0.002  # that work waits for others which always have something to do
_MAX_WAITING = 10_000
_large, _huge = FairThread("large requests", _MAX_WAITING), FairThread("huge requests", _MAX_WAITING)
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
    """The size of a JSON body: its objects, and the values in its arrays. Commas in texts count, too; they are too few
    to matter. Of a body over 1 MiB it is an estimate, and more than `HUGE_BYTES`."""
    if len(body) <= _LONG_BYTES:
        signs = body.translate(None, NO_VALUES)
        return len(signs) * _VALUE_BYTES + signs.count(b"{") * (_OBJECT_BYTES - _VALUE_BYTES)
    parts = b"".join(body[at : at + _SAMPLE_BYTES] for at in range(0, len(body), len(body) // _SAMPLES))
    return max(size_in(parts) * len(body) // len(parts), HUGE_BYTES + 1)


async def aside(tenant: str, size: int, work: Callable[[], T], within_s: float | None = None) -> T:
    """The result of `work` on about `size` bytes of a tenant's, which does not keep the event loop for long. Raises
    `Exhausted` where 10,000 large ones wait, and `TooLate` for a large one that is not done `within_s` seconds."""
    if size > LARGE_BYTES:
        try:
            async with asyncio.timeout(within_s):
                thread, doing = (_huge, _huge_work) if size > HUGE_BYTES else (_large, _without_frames)
                return await thread.run(tenant, partial(doing, work))
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


def _without_frames(work: Callable[[], T]) -> T:
    """The result of `work`. If it is refused, its variables go: they hold all that was made of the request."""
    try:
        return work()
    except BaseException as error:
        clear_frames(error.__traceback__)
        raise


def _huge_work(work: Callable[[], T]) -> T:
    with _without_collection():
        return _without_frames(work)


@contextmanager
def _without_collection() -> Iterator[None]:
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
