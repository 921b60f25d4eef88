"""Answers that outlast a client's connection, by a key that the client gives.

The answer runs separately from its client, and its events are kept. A client that loses the connection repeats its
request and reads on from where it was; a repeated request gets the same answer. Without a client the answer goes on for
a while, then it is given up; a whole one is kept as long. A failed answer is not kept: the next request tries again.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, groupby
from typing import Protocol

from opentelemetry.trace import Span

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.quota import REQUEST, TURN, Claim, Reservation
from services.gateway.answer.event_writer import Send
from services.gateway.errors import AnswerNotKept
from services.gateway.policies.single_flight import Flight, FlightReader
from services.gateway.settings.serving import KeptSettings
from services.runtime import telemetry
from services.runtime.aside import aside, size_of_text
from services.runtime.errors import InvalidInput


class SendChoice(Protocol):
    """Sends a message of an answer. `choice`: which of several answers; None: the only one, or a model's message about
    all of them."""

    async def __call__(self, message: pb.GenerateResponse, choice: int | None = None, /) -> None: ...


Begin = Callable[[Span, SendChoice], Awaitable[object]]  # gives the answer, or several
Admit = Callable[[Claim], Awaitable[Reservation]]
_Item = tuple[int | None, pb.Event]  # which of several answers it is of
_Key = tuple[str, str]  # a tenant's name, and its own key
_LONGEST_KEY = 128
_PORTION_BYTES = 262_144  # of events in one message, beside the last: all of a kept answer may be more than gRPC takes
_MAY_DIFFER = ("idempotency_key", "events_seen", "attempt", "budget_ms", "first_token_budget_ms", "heartbeat_ms")


@dataclass(slots=True, eq=False)
class _Kept:
    key: _Key
    request: bytes  # a digest of it
    keeper: FlightReader[_Item]  # keeps the answer going while no client reads it
    flight: Flight[_Item]
    clients: int = 0
    size: int = 0
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class IdempotencyStore:
    """The answers with a key, of all tenants. Each tenant has keys of its own."""

    settings: KeptSettings
    _kept: dict[_Key, _Kept] = field(default_factory=dict)  # the oldest first
    _sizes: Counter[str] = field(default_factory=Counter)  # in bytes, by tenant
    _unread: defaultdict[str, set[_Kept]] = field(default_factory=lambda: defaultdict(set))  # by tenant

    def __len__(self) -> int:
        return len(self._kept)

    def unread(self, tenant: str) -> bool:
        """Whether an answer of that tenant's is under way that no client reads, but may come back for."""
        return tenant in self._unread

    def has(self, tenant: str, key: str) -> bool:
        """Whether there is an answer of that tenant's key."""
        return (tenant, key) in self._kept

    async def follow(
        self,
        request: pb.GenerateRequest,
        tenant: str,
        begin: Begin,
        admit: Admit,
        within_s: float,
        send: SendChoice,
        *,
        choices: int = 1,
    ) -> None:
        """Send the events that this client has not seen. `begin` gives the answer where there is none yet, within its
        own budget, and has the slot of one client for as long as that takes; `admit` admits any other client, which
        reads for `within_s` at most. `choices`: how many answers it asks for. Raises `TooLate`."""
        digest = await aside(tenant, size_of_text(request.ByteSize()), partial(_digest, request, choices))
        if kept := self._find(request, tenant, digest):
            claim = REQUEST if kept.clients or kept.flight.over else TURN
        else:
            kept, claim, within_s = self._start((tenant, request.idempotency_key), digest, begin), None, math.inf
        reader = kept.flight.subscribe(within_s, request.events_seen)
        with self._client(kept, reader):
            reservation = await admit(claim) if claim else None
            try:
                while items := await reader.take():
                    for choice, events in _portions(items):
                        await send(pb.GenerateResponse(events=events), choice)
            finally:
                if reservation:
                    reservation.settle(0)

    @contextmanager
    def _client(self, kept: _Kept, reader: FlightReader[_Item]) -> Iterator[None]:
        kept.clients += 1
        self._drop_unread(kept)
        if kept.timer:
            kept.timer.cancel()
        try:
            yield
        finally:
            reader.close()
            kept.clients -= 1
            if not kept.clients and self._kept.get(kept.key) is kept:
                later = asyncio.get_running_loop().call_later
                kept.timer = later(self.settings.lasts_s, self._give_up, kept)
                if not kept.flight.over:
                    self._unread[kept.key[0]].add(kept)

    def drain(self) -> None:
        """Give up the answers without a client: no client will come back to a process that ends."""
        for kept in [each for each in self._kept.values() if not each.clients]:
            self._give_up(kept)

    def _find(self, request: pb.GenerateRequest, tenant: str, digest: bytes) -> _Kept | None:
        key, seen = request.idempotency_key, request.events_seen
        if not 1 <= len(key) <= _LONGEST_KEY:
            raise InvalidInput("idempotency_key", f"1 to {_LONGEST_KEY} characters", f"{len(key)} characters")
        kept = self._kept.get((tenant, key))
        if kept and kept.request != digest:
            raise InvalidInput("idempotency_key", "a different key for each request", "the key of another request")
        if kept is None and seen:
            raise AnswerNotKept(
                f"idempotency_key: no answer of this key is kept here, {seen} events of which were seen"
            )
        came = len(kept.flight.items) if kept else 0
        if not 0 <= seen <= came:
            raise InvalidInput("events_seen", f"0 to {came}, as many as there were", seen)
        return kept

    def _start(self, key: _Key, digest: bytes, begin: Begin) -> _Kept:
        flight = Flight[_Item]()
        kept = self._kept[key] = _Kept(key, digest, flight.subscribe(math.inf), flight)
        flight.start(self._fly(kept, begin))
        return kept

    async def _fly(self, kept: _Kept, begin: Begin) -> None:
        try:
            with telemetry.internal_span("answer") as span:  # the client's own may be over before
                await begin(span, partial(self._add, kept))
        except BaseException:
            self._forget(kept)
            raise
        finally:
            self._drop_unread(kept)

    async def _add(self, kept: _Kept, message: pb.GenerateResponse, choice: int | None = None, /) -> None:
        for event in message.events:
            kept.flight.add((choice, event))
        if self._kept.get(kept.key) is not kept:  # given up; its clients read it to the end
            return
        size = message.ByteSize()
        kept.size += size
        self._sizes[kept.key[0]] += size
        while self._sizes.total() > self.settings.bytes and (oldest := self._oldest()):
            self._give_up(oldest)

    def _oldest(self) -> _Kept | None:
        """The first of the tenant that has the most: of the answers without a client rather than of the others, and of
        the whole ones rather than of those under way."""

        def expendable(kept: _Kept) -> tuple[bool, bool, int]:
            return not kept.clients, kept.flight.over, self._sizes[kept.key[0]]

        return max(self._kept.values(), key=expendable, default=None)

    def _drop_unread(self, kept: _Kept) -> None:
        """A client reads the answer, or it is over: no client will come back for its slot."""
        unread = self._unread[kept.key[0]]
        unread.discard(kept)
        if not unread:
            del self._unread[kept.key[0]]

    def _give_up(self, kept: _Kept) -> None:
        self._forget(kept)
        kept.keeper.close()

    def _forget(self, kept: _Kept) -> None:
        if kept.timer:
            kept.timer.cancel()
        if self._kept.get(kept.key) is kept:
            del self._kept[kept.key]
            self._sizes[kept.key[0]] -= kept.size
            self._sizes += Counter()  # drops tenants at 0
            self._drop_unread(kept)


def _portions(items: Sequence[_Item]) -> Iterator[tuple[int | None, list[pb.Event]]]:
    """Events that may go in one message: of one answer, and few bytes. Those of several answers came in turn."""
    items = sorted(items, key=lambda item: -1 if item[0] is None else item[0])
    sizes = accumulate(event.ByteSize() for _, event in items)
    portions = groupby(zip(items, sizes, strict=True), key=lambda each: (each[0][0], each[1] // _PORTION_BYTES))
    return ((choice, [event for (_, event), _ in portion]) for (choice, _), portion in portions)


def _digest(request: pb.GenerateRequest, choices: int) -> bytes:
    """A digest of all fields in which two requests must be equal, and of the answers that they ask for."""
    same = pb.GenerateRequest()
    same.CopyFrom(request)
    for name in _MAY_DIFFER:
        same.ClearField(name)
    return hashlib.sha256(same.SerializeToString(deterministic=True)).digest() + b"%d" % choices


async def with_heartbeats(give: Callable[[SendChoice], Awaitable[object]], send: Send, every_s: float) -> None:
    """Give an answer, with a sign of life whenever there was none for so long."""
    clock, lock = asyncio.get_running_loop().time, asyncio.Lock()
    sent_at = clock()

    async def sending(message: pb.GenerateResponse, _: int | None = None, /) -> None:
        nonlocal sent_at
        async with lock:
            await send(message)
            sent_at = clock()

    giving = asyncio.ensure_future(give(sending))
    try:
        while not (await asyncio.wait({giving}, timeout=max(0.0, sent_at + every_s - clock())))[0]:
            if clock() >= sent_at + every_s:
                await sending(pb.GenerateResponse(events=[pb.Event(heartbeat=pb.Heartbeat())]))
        await giving
    finally:
        giving.cancel()
        await asyncio.wait({giving})
