"""The report of a blocked event loop: a histogram by function, and a line in the log.

Both are bounded, however often it happens: the first 100 functions have a label of their own, the others share
`(other)`, and each label has one line a minute, which says how many blocks it stands for.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from prometheus_client import Histogram

from services.runtime.deadline import Clock
from services.runtime.process.loop_watch.place import CodePlace

MOST_FUNCTIONS = 100
OTHER = "(other)"
LINE_EVERY_S = 60.0

_BLOCKED = Histogram(
    "hedgerow_loop_blocked_seconds",
    "Time for which a function blocked the event loop.",
    ["function"],
    buckets=(0.05, 0.1, 0.2, 0.5, 1, 2, 5),
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Block:
    """A time in which the loop was blocked, and its CPU time: for the rest the thread waited for a file, a lock or a
    core. `looks`: how often the thread was sampled, `seen`: how often at `place`."""

    place: CodePlace
    task: str
    wall_s: float
    cpu_s: float
    looks: int = 1
    seen: int = 1
    ended: bool = True


@dataclass(slots=True)
class _Logged:
    at: float
    since: int = 0  # blocks that no line was written for


class BlockReporter:
    """Used by one thread."""

    def __init__(self, clock: Clock = time.monotonic):
        self._clock = clock
        self._logged: dict[str, _Logged] = {}

    def __call__(self, block: Block) -> None:
        """Observe a block that has ended, and write a line where one is due. A block that goes on only has its line."""
        label = self._label(block.place.function)
        if block.ended:
            _BLOCKED.labels(label).observe(block.wall_s)
        last, now = self._logged.get(label), self._clock()
        if last and now < last.at + LINE_EVERY_S:
            last.since += block.ended
            return
        self._logged[label] = _Logged(now)
        _log.warning("%s", _line(block, last.since if last else 0))

    def _label(self, function: str) -> str:
        return function if function in self._logged or len(self._logged) < MOST_FUNCTIONS else OTHER


def _line(block: Block, before: int) -> str:
    """The log line of a block, and of `before` earlier ones of the same function without a line."""
    state = "was" if block.ended else "is still"
    text = (
        f"event loop {state} blocked: {block.wall_s * 1000:.0f} ms ({block.cpu_s * 1000:.0f} ms of CPU time) "
        f"in {block.place}, task {block.task or '-'}"
    )
    if block.seen < block.looks:
        text += f", seen there in {block.seen} of {block.looks} samples"
    return f"{text}; {before} more blocks by this function since its last line" if before else text
