"""The queue for a model's thread, and requests that leave it for others."""

from __future__ import annotations

import asyncio
import threading

import pytest

from services.cache import scheduler as under_test
from services.cache.collections import background_embedding
from services.cache.scheduler import BatchScheduler


async def test_a_displaced_waiter_may_just_have_been_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_MAX_WAITING", 2)
    gate = threading.Event()

    def compute(texts: list[str]) -> list[str]:
        gate.wait()
        return texts

    scheduler = BatchScheduler(compute, 1, "test", background_embedding._SECONDS)
    try:
        jobs = [scheduler.put("flood", str(number)) for number in range(4)]  # two of them run, two wait
        waiting = asyncio.gather(*(job.outcome for job in jobs))
        waiting.cancel()  # and its awaiting task has not run since
        other = scheduler.put("other", "text")
        gate.set()
        assert await asyncio.wait_for(other.outcome, 10) == "text"
        with pytest.raises(asyncio.CancelledError):
            await waiting
    finally:
        gate.set()
        scheduler.stop()
