"""Requests at a limiter."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine

import pytest

from services.gateway.policies.concurrency_limit import FixedLimit, Sample
from services.gateway.policies.limiter import Limiter
from services.gateway.policies.slot import Shed, Slot, SlotRequest
from services.runtime.deadline import Deadline
from tests.clock import PausedClock

HIGH, NORMAL, LOW = 75, 0, -50


class Adjustable:
    """A limit that the test moves; it keeps the samples."""

    def __init__(self, value: int):
        self.value = value
        self.samples: list[Sample] = []

    def sample(self, sample: Sample) -> None:
        self.samples.append(sample)


def gate_of(slots: int = 1, queue: int = 10, **options) -> Limiter:
    options = {"queue_s": 60, "shed_load": 2.0, "clock": PausedClock(), "rng": random.Random(1)} | options
    return Limiter("llm demo", options.pop("limit", None) or FixedLimit(slots), queue, **options)


def request(score: int = NORMAL, tenant: str = "a", weight: float = 1, deadline: Deadline | None = None) -> SlotRequest:
    return SlotRequest(score, tenant, weight, deadline or Deadline.never())


async def settled() -> None:
    """Let every task that can run do so."""
    for _ in range(5):
        await asyncio.sleep(0)


WAITING: set[asyncio.Task[Slot]] = set()  # of the running test; the fixture `nobody_waits_on` cancels them


async def waiting(limiter: Limiter, *requests: SlotRequest) -> list[asyncio.Task[Slot]]:
    """A task for each request, in this order; each waits or is done."""
    tasks = [asyncio.create_task(limiter.enter(request)) for request in requests]
    await settled()
    WAITING.update(tasks)
    return tasks


async def refusal(entering: Coroutine[None, None, Slot] | asyncio.Task[Slot]) -> Shed:
    with pytest.raises(Shed) as caught:
        await entering
    return caught.value
