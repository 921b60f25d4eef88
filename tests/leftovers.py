"""Leftovers of a test in its event loop: tasks that still run, exceptions that are never retrieved, and asynchronous
generators of ours that only the garbage collector ends. Each of them is work that goes on for a caller that has
left."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_PRODUCT = tuple(str(_ROOT / folder) for folder in ("services", "hedgerow", "hedgerow_cli", "launcher"))
_OURS = (*_PRODUCT, str(_ROOT / "bench"), str(_ROOT / "tests"))
_TURNS = 10  # of the loop, for what was cancelled last to end


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """Raises `AssertionError` at the end for what was left behind inside."""
    loop, before = asyncio.get_running_loop(), asyncio.all_tasks()
    unhandled, unclosed = list[str](), list[str]()
    handler, finalizer = loop.get_exception_handler(), loop._asyncgen_finalizer_hook  # type: ignore[attr-defined]

    def hear(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # gRPC's one poller may wake the closed loop of an earlier test.
        if not context["message"].startswith("Exception in callback PollerCompletionQueue._handle_events"):
            unhandled.append(f"{context['message']}: {context.get('exception')!r}")

    def finalize(generator: Any) -> None:
        code = getattr(generator, "ag_code", None)  # gRPC's, in Cython, has none
        if code and code.co_filename.startswith(_PRODUCT):
            unclosed.append(f"{code.co_qualname} ({Path(code.co_filename).name}:{generator.ag_frame.f_lineno})")
        finalizer(generator)

    loop.set_exception_handler(hear)
    _finalize_with(loop, finalize)
    try:
        yield
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        gc.collect(1)
    finally:
        loop.set_exception_handler(handler)
        _finalize_with(loop, finalizer)
    left = sorted(filter(None, map(_name, asyncio.all_tasks() - before)))
    assert not left, f"tasks that still run: {left}"
    assert not unhandled, f"unhandled exceptions: {unhandled}"
    assert not unclosed, f"generators that only the garbage collector ends: {unclosed}"


def _finalize_with(loop: Any, finalizer: Callable[[Any], None]) -> None:
    """In this run of the loop, and in its later ones, for which there is no public way."""
    sys.set_asyncgen_hooks(finalizer=finalizer)
    loop._asyncgen_finalizer_hook = finalizer


def _name(task: asyncio.Task[Any]) -> str:
    """The name of a task of ours; libraries' tasks end with their servers and connections."""
    code = getattr(task.get_coro(), "cr_code", None)
    return code.co_qualname if code and code.co_filename.startswith(_OURS) else ""
