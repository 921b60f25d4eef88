"""A few real generations before the first caller comes: whatever compiles or allocates on first use does so now."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

from services.llm.engine import Constraint, Engine, Message, Progress, Request, Sampling
from services.runtime.deadline import Deadline

_WORDS = "Repeat after me: one two three four five six seven eight. "
_SHORT = Request((Message("user", "Hello."),), Sampling(temperature=0, max_tokens=8))
# Repeats itself, so that prompt lookup finds something to propose; long enough for several blocks of key-value cache.
_LONG = Request((Message("user", _WORDS * 8),), Sampling(temperature=0, max_tokens=24))
_DRAWN = Request((Message("user", "Hello."),), Sampling(temperature=0.8, top_p=0.9, seed=1, max_tokens=8))
_OBJECT = Request(_SHORT.messages, Sampling(temperature=0, max_tokens=8), Constraint("json_object"))

_STEPS: tuple[tuple[str, tuple[Request, ...]], ...] = (
    ("a first token", (_SHORT,)),
    ("a long prompt", (_LONG,)),
    ("drawn tokens", (_DRAWN,)),
    ("a batch", (_SHORT, _LONG, _DRAWN, _SHORT)),
    ("constrained decoding", (_OBJECT,)),
)


async def warm_up(engine: Engine, progress: Progress) -> None:
    """Run every step, one after the other. Raises what the engine raises."""
    for name, requests in _STEPS:
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for request in requests:
                group.create_task(_drain(engine, request))
        progress(f"warm-up: {name} in {(time.monotonic() - started) * 1e3:.0f} ms")


async def _drain(engine: Engine, request: Request) -> None:
    async with aclosing(engine.generate(request, Deadline.never())) as chunks:
        async for _ in chunks:
            pass
