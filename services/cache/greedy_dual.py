"""Which of a tenant's entries makes room: the one that is worth the least, as a cost saved for each byte it takes.

GreedyDual-Size-Frequency (Cherkasova, Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching Policy,
HPL-98-69R1, 1998): an entry's priority is `clock + uses * cost / size`, taken at each use, and its store is the first.
The value with the lowest goes, and the clock is set to what that had. So what is costly or often asked for stays longer
than what is cheap, and what is not asked for any more goes when the clock has come up to it, however often it was. A
change takes O(log n).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Protocol

from google.protobuf.message import DecodeError

from hedgerow.cache.v1 import cache_pb2

_PROMPT_TOKENS = 4  # cost as much as one that is generated: roughly what providers charge
_TOKEN_BYTES = 4  # of an answer whose tokens were not counted


class Valued(Protocol):
    """A value with a priority, 0 before its first use. `cost`: of having it once more. `size`: in bytes, above 0."""

    uses: int
    cost: float
    priority: float

    @property
    def size(self) -> int: ...


_Place = tuple[float, int, str]  # priority, when it was given, key


class GreedyDual:
    """The order of one tenant's values. One that comes with a priority keeps it, and advances the clock to its last
    use. The clock goes on from the latest of these, so after a restart all is as it was."""

    def __init__(self) -> None:
        self._clock = 0.0
        self._ticks = 0
        self._places: dict[str, _Place] = {}
        self._heap: list[_Place] = []  # has those of some that are gone, or elsewhere by now

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def put(self, key: str, value: Valued) -> None:
        """Add a value. Without a priority it is the last to go, until its first use."""
        if value.priority:
            self._clock = max(self._clock, value.priority - _worth(value))
        self._place(key, value.priority or math.inf)

    def use(self, key: str, value: Valued) -> None:
        """Record a use."""
        value.uses += 1
        value.priority = self._clock + _worth(value)
        self._place(key, value.priority)

    def pop(self, key: str) -> None:
        """Remove a key."""
        del self._places[key]

    def next_to_evict(self) -> str:
        """The key with the lowest priority. The clock advances as if it were evicted."""
        while self._places.get(self._heap[0][2]) is not self._heap[0]:
            heapq.heappop(self._heap)
        self._clock, _, key = self._heap[0]
        return key

    def _place(self, key: str, priority: float) -> None:
        self._ticks += 1  # of those with the same priority, the least recently used goes
        place = self._places[key] = priority, self._ticks, key
        heapq.heappush(self._heap, place)
        if len(self._heap) > 2 * len(self._places):
            self._heap = list(self._places.values())
            heapq.heapify(self._heap)


def _worth(value: Valued) -> float:
    return value.uses * value.cost / value.size


def cost(answer: bytes) -> float:
    """The cost of an encoded answer, in tokens that were generated; at least 1."""
    try:
        kept = cache_pb2.Answer.FromString(answer)
    except DecodeError:  # not ours
        return 1.0
    generated = kept.usage.completion_tokens or len(kept.text) / _TOKEN_BYTES
    return max(1.0, generated + kept.usage.prompt_tokens / _PROMPT_TOKENS)
