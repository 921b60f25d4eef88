"""An answer that is kept for its client, and which of a tenant's answers is given up first."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.policies.single_flight import Flight, FlightReader

# Resident memory beside the bytes of the events, measured: the objects of an answer, and of each event.
_ANSWER_BYTES, _EVENT_BYTES = 3_000, 110
_PORTION_BYTES = 262_144  # of events in one message, beside the last: all of a kept answer may be more than gRPC takes

Key = tuple[str, str]  # a tenant's name, and its own key
# Which of several answers an event is of (None: the only one, or a message about all of them), and a message with the
# event alone, encoded: decoded it would take five times the memory.
Item = tuple[int | None, bytes]


@dataclass(slots=True, eq=False)
class KeptAnswer:
    """An answer with a key, under way or `whole`. `request`: a digest of the request."""

    key: Key
    request: bytes
    keeper: FlightReader[Item]  # keeps the answer going while no client reads it
    flight: Flight[Item]
    clients: int = 0
    whole: bool = False
    size: int = _ANSWER_BYTES
    timer: asyncio.TimerHandle | None = None

    @property
    def tenant(self) -> str:
        return self.key[0]


class ExpendableFirst:
    """The order in which a tenant's answers are given up: whole ones without a client, those under way without a
    client, whole ones with a client, and those that a client reads. In each group the first to have come into it."""

    def __init__(self) -> None:
        self._groups: tuple[dict[Key, None], ...] = ({}, {}, {}, {})
        self._group: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._group)

    def __iter__(self) -> Iterator[Key]:
        return chain.from_iterable(self._groups)

    def put(self, key: Key, value: KeptAnswer) -> None:
        group = self._group[key] = 2 * bool(value.clients) + (not value.whole)
        self._groups[group][key] = None

    def use(self, key: Key, value: KeptAnswer) -> None:
        """Record that an answer is whole, or has got or lost clients."""
        self.pop(key)
        self.put(key, value)

    def pop(self, key: Key) -> None:
        del self._groups[self._group.pop(key)][key]

    def next_to_evict(self) -> Key:
        return next(iter(self))


def encoded(message: pb.GenerateResponse, choice: int | None) -> list[Item]:
    """The events of a message."""
    if len(message.events) == 1:
        return [(choice, message.SerializeToString())]
    return [(choice, pb.GenerateResponse(events=[event]).SerializeToString()) for event in message.events]


def size(items: Sequence[Item]) -> int:
    """The memory of events, in bytes."""
    return sum(len(data) for _, data in items) + _EVENT_BYTES * len(items)


def portions(items: Sequence[Item]) -> Iterator[tuple[int | None, pb.GenerateResponse]]:
    """Events as messages, each of one answer, and of few bytes. Those of several answers came in turn."""
    items = sorted(items, key=lambda item: -1 if item[0] is None else item[0])
    sizes = accumulate(len(data) for _, data in items)
    groups = groupby(zip(items, sizes, strict=True), key=lambda each: (each[0][0], each[1] // _PORTION_BYTES))
    for (choice, _), group in groups:
        # Encoded messages in a row are one message with the events of all.
        yield choice, pb.GenerateResponse.FromString(b"".join(data for (_, data), _ in group))
