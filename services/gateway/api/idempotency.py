"""Answers that outlast a client's connection, by a key that the client gives.

The answer runs separately from its client, and its events are kept. A client that loses the connection repeats its
request and reads on from where it was; a repeated request gets the same answer. Without a client the answer goes on for
a while, then it is given up; a whole one is kept as long. A failed answer is not kept: the next request tries again.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from opentelemetry.trace import Span

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.quota import REQUEST, TURN, Claim, Reservation
from services.gateway.answer.event_writer import Send
from services.gateway.api import kept_answer
from services.gateway.api.kept_answer import ExpendableFirst, Item, KeptAnswer, Key
from services.gateway.errors import AnswerNotKept
from services.gateway.policies.single_flight import Flight, FlightReader
from services.gateway.settings.serving import KeptSettings
from services.runtime import telemetry
from services.runtime.aside import aside, size_of_text
from services.runtime.errors import InvalidInput
from services.runtime.policy.fair_lru import FairLru


class SendChoice(Protocol):
    """Sends a message of an answer. `choice`: which of several answers; None: the only one, or a model's message about
    all of them."""

    async def __call__(self, message: pb.GenerateResponse, choice: int | None = None, /) -> None: ...


Begin = Callable[[Span, SendChoice], Awaitable[object]]  # gives the answer, or several
Admit = Callable[[Claim], Awaitable[Reservation]]
_LONGEST_KEY = 128
_MAY_DIFFER = ("idempotency_key", "events_seen", "attempt", "budget_ms", "first_token_budget_ms", "heartbeat_ms")


class IdempotencyStore:
    """The answers with a key, of all tenants. Each tenant has keys of its own."""

    def __init__(self, settings: KeptSettings):
        self.settings = settings
        self._kept: FairLru[Key, KeptAnswer] = FairLru(settings.bytes, order=ExpendableFirst)
        self._unread: defaultdict[str, set[KeptAnswer]] = defaultdict(set)  # by tenant
        self._draining = False

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size(self) -> int:
        """The memory of the answers that are kept, in bytes."""
        return self._kept.bytes

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
                    for choice, message in kept_answer.portions(items):
                        await send(message, choice)
            finally:
                if reservation:
                    reservation.settle(0)

    @contextmanager
    def _client(self, kept: KeptAnswer, reader: FlightReader[Item]) -> Iterator[None]:
        kept.clients += 1
        self._rank(kept)
        self._drop_unread(kept)
        if kept.timer:
            kept.timer.cancel()
        try:
            yield
        finally:
            reader.close()
            kept.clients -= 1
            self._rank(kept)
            if not kept.clients and self._draining:
                self._give_up(kept)
            elif not kept.clients and self._holds(kept):
                later = asyncio.get_running_loop().call_later
                kept.timer = later(self.settings.lasts_s, self._give_up, kept)
                if not kept.flight.over:
                    self._unread[kept.tenant].add(kept)

    def drain(self) -> None:
        """Give up the answers without a client from now on: no client will come back to a process that ends."""
        self._draining = True
        for kept in [each for each in self._kept if not each.clients]:
            self._give_up(kept)

    def _find(self, request: pb.GenerateRequest, tenant: str, digest: bytes) -> KeptAnswer | None:
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

    def _start(self, key: Key, digest: bytes, begin: Begin) -> KeptAnswer:
        flight = Flight[Item]()
        kept = KeptAnswer(key, digest, flight.subscribe(math.inf), flight)
        self._kept.put(key, kept)
        flight.start(self._fly(kept, begin))
        return kept

    async def _fly(self, kept: KeptAnswer, begin: Begin) -> None:
        try:
            with telemetry.internal_span("answer") as span:  # the client's own may be over before
                await begin(span, partial(self._add, kept))
        except BaseException:
            self._forget(kept)
            raise
        finally:
            kept.whole = True
            self._rank(kept)
            self._drop_unread(kept)

    async def _add(self, kept: KeptAnswer, message: pb.GenerateResponse, choice: int | None = None, /) -> None:
        items = kept_answer.encoded(message, choice)
        for item in items:
            kept.flight.add(item)
        if not self._holds(kept):  # given up; its clients read it to the end
            return
        more = kept_answer.size(items)
        kept.size += more
        self._kept.grow(kept.key, more)
        while self._kept.full and (expendable := self._kept.get(self._kept.next_to_evict())):
            self._give_up(expendable)

    def _holds(self, kept: KeptAnswer) -> bool:
        return self._kept.get(kept.key) is kept

    def _rank(self, kept: KeptAnswer) -> None:
        """An answer is whole, or has got or lost a client."""
        if self._holds(kept):
            self._kept.use(kept.key)

    def _drop_unread(self, kept: KeptAnswer) -> None:
        """A client reads the answer, or it is over: no client will come back for its slot."""
        unread = self._unread[kept.tenant]
        unread.discard(kept)
        if not unread:
            del self._unread[kept.tenant]

    def _give_up(self, kept: KeptAnswer) -> None:
        self._forget(kept)
        kept.keeper.close()

    def _forget(self, kept: KeptAnswer) -> None:
        if kept.timer:
            kept.timer.cancel()
        if self._holds(kept):
            self._kept.pop(kept.key)
            self._drop_unread(kept)


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
