"""A request for a slot of a limiter, its score and class, the slot it is given, and the error when it is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.gateway.policies.concurrency_limit import Sample
from services.runtime.deadline import Deadline
from services.runtime.errors import Exhausted

CLASSES = ("critical", "high", "normal", "low")
_MAX_REPEATS = 10
_BACKGROUND = 1_000  # below every interactive request
# Gives a slot back: the tenant whose share it counts to, when it was given, whether in the background, and the sample
# of its call.
Release = Callable[[str | None, float | None, bool, Sample | None], None]


def score(*, premium: bool, realtime: bool, attempt: int, background: bool = False) -> int:
    """Premium +100, real-time +75, each of at most ten repeats -50; background requests come last."""
    return 100 * premium + 75 * realtime - 50 * min(max(attempt, 0), _MAX_REPEATS) - _BACKGROUND * background


def class_of(score: int) -> int:
    """The index in `CLASSES`: critical from 100 on, high from 50, normal from 0, else low."""
    return 0 if score >= 100 else 1 if score >= 50 else 2 if score >= 0 else 3


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """A request for a slot. `weight` is the share of the tenant against others of its class. One in the background has
    `on_slot`, which is called when it has its slot: an item of a batch, or an answer that no client waits for. It takes
    only spare slots (`batch_admission.py`)."""

    score: int
    tenant: str
    weight: float
    deadline: Deadline
    on_slot: Callable[[], None] | None = None

    @classmethod
    def background(cls, tenant: str, weight: float, deadline: Deadline) -> SlotRequest:
        """A request for a call that no client waits for: the last of all."""
        rank = score(premium=False, realtime=False, attempt=0, background=True)
        return cls(rank, tenant, weight, deadline, on_slot=lambda: None)

    @property
    def in_background(self) -> bool:
        return self.on_slot is not None


class Slot:
    """A slot; its owner must release it. `in_flight` is how many were taken when it was given, itself included;
    `waited_s` is 0 where it was given at once."""

    __slots__ = ("_batch", "_began", "_release", "_tenant", "in_flight", "waited_s")

    def __init__(self, release: Release, in_flight: int, tenant: str | None, began: float, batch: bool):
        self._release: Release | None = release
        self.in_flight, self._tenant, self._began, self._batch = in_flight, tenant, began, batch
        self.waited_s = 0.0

    def release(self, sample: Sample | None = None, *, unused: bool = False) -> bool:
        """Give the slot back, once, with the sample of its call. `unused`: no call has held it. Returns whether it was
        still held."""
        release, self._release = self._release, None
        if release is not None:
            release(self._tenant, None if unused else self._began, self._batch, sample)
        return release is not None


class Shed(Exhausted):
    """Refused in favour of others; the metadata's `why`: load, pressure, full, displaced or expired."""

    reason = "SHED"
