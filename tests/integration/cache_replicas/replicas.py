"""Replicas of the cache in one process, on a real Redis, with an engine that needs no model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from services.cache.answers import Answers, LookupResult
from services.cache.embedding import Embedder
from services.cache.encryption import Encryption
from services.cache.entries import Entry, now_ms
from services.cache.keyed_question import KeyedQuestion
from services.cache.memory import Memory
from services.cache.redis_entries import RedisEntries, last_sequence
from services.cache.redis_scripts import ENTRY
from services.cache.redis_store import RedisStore
from services.cache.semantic_match.thresholds import Thresholds
from services.cache.semantic_match.verification import Verification
from services.cache.tombstones import Removal
from services.runtime.deadline import Deadline
from services.runtime.security.secrets import Url
from services.runtime.shared_state import SharedState, SharedStateLost, connected
from tests.redis import PATIENT_S, RedisProcess
from tests.stores import at_work
from tests.unit.cache.conftest import BagOfWords, identity, memory
from tests.waiting import until

CAPITAL = identity("what is the capital of france please")
REWORDED = identity("what is the capital of france really")
OTHER = identity("an entirely unrelated thing")
THEIRS = identity(CAPITAL.asked, tenant="globex")


@dataclass
class Replica:
    """A cache and its parts."""

    answers: Answers
    store: RedisStore
    memory: Memory
    state: SharedState

    async def keep(self, question: KeyedQuestion, answer: bytes, ttl_ms: int = 600_000, epoch: int = 0) -> bool:
        return await self.answers.store(question, answer, ttl_ms, Deadline.never(), epoch)

    async def look_up(self, question: KeyedQuestion, threshold: float = 1) -> LookupResult:
        return await self.answers.lookup(question, threshold, Deadline.never())

    async def remove(self, question: KeyedQuestion) -> int:
        return await self.answers.remove(Removal(key=question.key))

    async def remove_tenant(self, tenant: str) -> int:
        return await self.answers.remove(Removal(tenant=tenant))

    def holds(self) -> dict[str, bytes]:
        """Answers by key."""
        return {entry.key: entry.answer for entry in self.memory.entries}


Pair = tuple[Replica, Replica]


@asynccontextmanager
async def replica(
    url: str,
    *,
    max_entries: int = 1_000,
    verify_share: float = 0,
    keys: Sequence[bytes] = (),
    ahead_ms: Callable[[], int] = lambda: 0,
) -> AsyncIterator[Replica]:
    """A replica that has asked for Redis once, as a service that starts has. `ahead_ms`: what its clock says more."""

    def its_clock_ms() -> int:
        return now_ms() + ahead_ms()

    engine = BagOfWords()
    held = memory(max_entries, 10**8, 60_000, thresholds=Thresholds(0.95, 0.01, "engine"))
    async with connected(Url(url), PATIENT_S) as state:
        store = RedisStore(state, held, engine.name, 60_000, its_clock_ms, Encryption(keys))
        verification = Verification(held.thresholds, verify_share)
        embedder = Embedder(engine, 10**6, 60)
        answers = Answers(held, store, embedder, engine.unseen, lambda text: "", verification, its_clock_ms)
        try:
            async with at_work(store):
                yield Replica(answers, store, held, state)
        finally:
            answers.close()


async def up_to_date(*replicas: Replica) -> None:
    """Return when every replica has received every change."""

    async def all_of_them() -> bool:
        with suppress(SharedStateLost):
            return all([await each.state.ask(last_sequence) == each.store.sequence for each in replicas])
        return False

    await until(all_of_them)


async def kept(redis: RedisProcess) -> dict[str, bytes]:
    """What Redis holds: answers by key."""
    async with redis.client() as client:
        names = [name.decode() async for name in client.scan_iter(f"{ENTRY}*")]
        return {name.removeprefix(ENTRY): await client.hget(name, "answer") for name in names}


async def agreed(redis: RedisProcess, *replicas: Replica) -> dict[str, bytes]:
    """The entries of Redis and of every replica, once all have received every change: they are equal."""
    await up_to_date(*replicas)
    held = await kept(redis)
    assert all(each.holds() == held for each in replicas)
    return held


def entry(question: KeyedQuestion, answer: bytes = b"Paris", *, ttl_ms: int = 600_000, used_ms: int = 0) -> Entry:
    """An entry of now. `used_ms`: when it was used last, counted from now."""
    now = now_ms()
    asked, times = question.asked.encode(), (now + ttl_ms, now + used_ms)
    return Entry(question.key, question.tenant, question.partition, asked, answer, *times)


def another() -> RedisEntries:
    """Another replica's, which does what a test wants of it."""
    return RedisEntries("bag of words", 0, now_ms)
