"""Questions that are stored and looked up in a cache with a clock moved by hand, and requests by its contract."""

from __future__ import annotations

from opentelemetry.trace import INVALID_SPAN

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from services.cache.answers import LookupResult
from services.cache.config import CacheSettings
from services.cache.keyed_question import KeyedQuestion
from services.cache.servicer import CacheServicer
from services.runtime.deadline import Deadline
from services.runtime.rpc.boundary import Call
from tests.unit.cache.conftest import Bench, identity

NEVER = Deadline.never()
CALL = Call((), NEVER, INVALID_SPAN)
ANSWER = cache_pb2.Answer(text="Paris.", model="demo", finish_reason=chat_pb2.FINISH_REASON_STOP)
CAPITAL = identity("what is the capital of france please")
REWORDED = identity("what is the capital of france really")


async def store(bench: Bench, question: KeyedQuestion, answer: bytes = b"Paris", ttl_ms: int = 10_000) -> None:
    await bench.answers.store(question, answer, ttl_ms, NEVER)


async def look_up(bench: Bench, question: KeyedQuestion, threshold: float = 0.8) -> LookupResult:
    return await bench.answers.lookup(question, threshold, NEVER)


async def answer_to(bench: Bench, question: KeyedQuestion, threshold: float = 0.8) -> bytes | None:
    """The answer of a hit."""
    found = await look_up(bench, question, threshold)
    return found.entry and found.entry.answer


def served(bench: Bench) -> CacheServicer:
    return CacheServicer(bench.answers, CacheSettings())
