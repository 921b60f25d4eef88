"""Results that may answer again: of the same arguments of the same tool, to the same tenant, for as long as the tool
says."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hedgerow.tool.v1 import tool_pb2
from services.runtime.deadline import Clock
from services.runtime.policy.fair_lru import FairLru

_OVERHEAD_BYTES = 600  # of a result beside its message's fields
Place = tuple[str, str, str, str]  # a tenant, a source, a tool of its, arguments


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    tenant: str
    result: tool_pb2.CallToolResponse
    size: int
    until: float


class Reused:
    """At most `max_bytes` of them; tenants share the room fairly."""

    def __init__(self, max_bytes: int, clock: Clock = time.monotonic):
        self._kept: FairLru[Place, _Kept] = FairLru(max_bytes)
        self._clock = clock

    def get(self, place: Place) -> tool_pb2.CallToolResponse | None:
        kept = self._kept.get(place)
        if kept is None:
            return None
        if kept.until <= self._clock():
            self._kept.pop(place)
            return None
        self._kept.use(place)
        return kept.result

    def put(self, place: Place, result: tool_pb2.CallToolResponse, for_s: float) -> None:
        size = result.ByteSize() + sum(map(len, place)) + _OVERHEAD_BYTES
        self._kept.replace(place, _Kept(place[0], result, size, self._clock() + for_s))
