"""Questions that are stored and looked up in a cache with a clock moved by hand."""

from __future__ import annotations

from services.cache.answers import LookupResult
from services.cache.keyed_question import KeyedQuestion
from services.runtime.deadline import Deadline
from tests.unit.cache.conftest import Bench, identity

NEVER = Deadline.never()
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
