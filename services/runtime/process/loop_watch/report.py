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
from services.runtime.line_limit import LineLimit
from services.runtime.process.loop_watch.place import CodePlace

MOST_FUNCTIONS = 100
OTHER = "(other)"

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


class BlockReporter:
    """Used by one thread."""

    def __init__(self, clock: Clock = time.monotonic):
        self._lines, self._known = LineLimit(clock), set[str]()

    def __call__(self, block: Block) -> None:
        """Observe a block that has ended, and write a line where one is due. A block that goes on only has its line."""
        label = self._label(block.place.function)
        if block.ended:
            _BLOCKED.labels(label).observe(block.wall_s)
        if (left_out := self._lines.take(label)) is not None:
            _log.warning("%s", _line(block, left_out))

    def _label(self, function: str) -> str:
        if len(self._known) < MOST_FUNCTIONS:
            self._known.add(function)
        return function if function in self._known else OTHER


def _line(block: Block, before: int) -> str:
    """The log line of a block, and of `before` earlier reports of the same function without a line."""
    state = "was" if block.ended else "is still"
    text = (
        f"event loop {state} blocked: {block.wall_s * 1000:.0f} ms ({block.cpu_s * 1000:.0f} ms of CPU time) "
        f"in {block.place}, task {block.task or '-'}"
    )
    if block.seen < block.looks:
        text += f", seen there in {block.seen} of {block.looks} samples"
    return f"{text}; {before} more reports of this function since its last line" if before else text
