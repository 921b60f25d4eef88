"""Answers that outlast connections, whatever clients do in whatever order, with a clock that jumps."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from opentelemetry.trace import Span

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.quota import Allowance, Claim, Quotas, Reservation
from services.gateway.answer.event_writer import Send
from services.gateway.api.idempotency import IdempotencyStore
from services.gateway.errors import AnswerNotKept
from services.gateway.settings.serving import KeptSettings
from services.runtime.errors import Exhausted, InvalidInput
from tests.clock import PausedLoop
from tests.examples import examples

SEEDED = settings(max_examples=examples(250), stateful_step_count=25, derandomize=True, deadline=None, database=None)
_KEPT_S, _WORDS = 3, 4  # an answer has a word each second
_ROOM = 8_000  # an answer takes about 3.5 KB
TENANTS, KEYS = st.sampled_from("ab"), st.sampled_from("kl")


@dataclass
class Client:
    """Reads from the event `seen` on. `read`: the words that came."""

    tenant: str
    key: str
    seen: int
    read: list[str] = field(default_factory=list)
    ended: str = ""


class Kept(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = PausedLoop()
        self.answers = IdempotencyStore(KeptSettings(ms=_KEPT_S * 1_000, bytes=_ROOM))
        self.quotas = Quotas()
        self.under_way = Counter[str]()  # answers by their number
        self.begun = 0
        self.failing = False
        self.clients: dict[asyncio.Task[None], Client] = {}

    async def _begin(self, span: Span, send: Send) -> None:
        self.begun += 1
        await self._words(str(self.begun % 10), self.failing, send)

    async def _admit(self, claim: Claim) -> Reservation:
        return self.quotas.reserve("a", Allowance(), 0, claim)

    async def _words(self, number: str, failing: bool, send: Send) -> None:
        self.under_way[number] += 1
        try:
            for word in range(_WORDS):
                await asyncio.sleep(1)
                if failing and word == 2:
                    raise Exhausted("busy")
                await send(pb.GenerateResponse(events=[pb.Event(delta=pb.TextDelta(text=f"{number}.{word}"))]))
        finally:
            self.under_way[number] -= 1

    async def _follow(self, client: Client) -> None:
        request = pb.GenerateRequest(idempotency_key=client.key, events_seen=client.seen)

        async def read(message: pb.GenerateResponse, _: int | None = None, /) -> None:
            client.read += [event.delta.text for event in message.events]

        try:
            await self.answers.follow(request, client.tenant, self._begin, self._admit, 100, read)
            client.ended = "whole"
        except (AnswerNotKept, InvalidInput, Exhausted) as error:
            client.ended = type(error).__name__

    def run_for(self, seconds: float) -> None:
        """Let so many seconds pass; tasks that are cancelled at the last moment end, too."""
        for each in (seconds, 0, 0):
            self.loop.run_until_complete(asyncio.sleep(each))

    @rule(tenant=TENANTS, key=KEYS, seen=st.sampled_from([0, 0, 1, 3]))
    def asks(self, tenant: str, key: str, seen: int) -> None:
        client = Client(tenant, key, seen)
        self.clients[self.loop.create_task(self._follow(client))] = client
        self.run_for(0)

    @precondition(lambda self: any(not task.done() for task in self.clients))
    @rule(at=st.integers(0, 9))
    def leaves(self, at: int) -> None:
        reading = [task for task in self.clients if not task.done()]
        reading[at % len(reading)].cancel()
        self.run_for(0)

    @rule(seconds=st.sampled_from([0.5, 1, 1, 2, _KEPT_S - 0.1, _KEPT_S + 0.1, 100, 1e5]))
    def time_passes(self, seconds: float) -> None:
        self.run_for(seconds)

    @rule(failing=st.booleans())
    def models_fail_or_not(self, failing: bool) -> None:
        self.failing = failing

    @precondition(lambda self: self.begun > 3)  # after which no answer is kept without a client
    @rule()
    def gateway_drains(self) -> None:
        self.answers.drain()
        self.run_for(0)

    @invariant()
    def what_is_counted_is_what_is_kept(self) -> None:
        assert self.answers.size == sum(kept.size for kept in self.answers._kept)
        # A new answer counts, and makes room with its first event.
        assert self.answers.size <= _ROOM + 3_000 * (+self.under_way).total()

    @invariant()
    def only_what_nobody_reads_is_about_to_be_given_up(self) -> None:
        for kept in self.answers._kept:
            waits = kept.timer is not None and not kept.timer.cancelled()
            assert waits == (kept.clients == 0)

    @invariant()
    def no_answer_is_made_for_nobody(self) -> None:
        reading = sum(not task.done() for task in self.clients)
        assert +self.under_way == Counter(dict.fromkeys(+self.under_way, 1))  # each is made once
        assert (+self.under_way).total() <= len(self.answers) + reading

    @invariant()
    def each_client_reads_one_answer_in_order_from_where_it_was(self) -> None:
        for client in self.clients.values():
            numbers = {word[0] for word in client.read}
            positions = [int(word[2:]) for word in client.read]
            assert len(numbers) <= 1
            assert positions == list(range(client.seen, client.seen + len(positions)))
            assert client.ended != "whole" or client.seen + len(positions) == _WORDS

    def teardown(self) -> None:
        for task in self.clients:
            task.cancel()
        self.run_for(0)
        self.run_for(_KEPT_S + 0.1)
        assert (len(self.answers), self.answers.size, (+self.under_way).total()) == (0, 0, 0)
        assert not asyncio.all_tasks(self.loop)
        self.loop.close()


TestKept = Kept.TestCase
TestKept.settings = SEEDED
