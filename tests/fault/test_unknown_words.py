"""Questions that differ only where the embedder is blind, through a real gateway and a real cache."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from tests.fault.asking import Asker, Outcome, asking
from tests.fault.faulty_llm import FaultyLlm
from tests.fault.mesh import PATIENT_LOOKUPS, Processes, stats
from tests.fault.report import Report
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]
_NEAR = pb.CachePolicy(min_similarity=0.98)  # texts that the embedder cannot distinguish have 1.0
_HITS = (pb.CACHE_VERDICT_EXACT, pb.CACHE_VERDICT_SEMANTIC)
_PAIRS, _PAIRS_AT_FULL_SIZE, _AT_ONCE = 3, 60, 8
_ACCENTED = str.maketrans("aeiou", "áéíóú")
# With so many English words the cache takes a question for English, and compares it.
_ENGLISH = "I would like to know from you how it works when we {}, in a few short sentences please"
_LATIN, _CHEROKEE = "abcdefghijklmnopqrstuvwxyz", "".join(map(chr, range(0x13A0, 0x13F0)))
_TOPICS = ("sequences", "recipes", "letters", "songs", "names", "codes", "villages", "engines", "paints", "stones")


def _word(chance: random.Random, letters: str, length: int) -> str:
    return "".join(chance.choices(letters, k=length))


def _with_two(chance: random.Random, word: Callable[[], str]) -> tuple[str, str]:
    """Two questions that differ in two words: in one alone the guard would see it."""
    topic = f"{chance.choice(_TOPICS)} of {chance.randrange(10**6)}"
    return f"align {word()} with {word()} in {topic}", f"align {word()} with {word()} in {topic}"


def _accents(chance: random.Random) -> tuple[str, str]:
    words = [_word(chance, _LATIN, 5) + "a" for _ in range(2)]
    plain, accented = " and ".join(words), " and ".join(word.translate(_ACCENTED) for word in words)
    return (f"what is {plain}", f"what is {accented}") if chance.random() < 0.5 else (accented, plain)


def _invisible(chance: random.Random) -> tuple[str, str]:
    first, second = (_word(chance, _LATIN, 6) for _ in range(2))
    mark = chance.choice("\u200b\u00ad\u2060\u200d")
    return f"compare {first} to {second}", f"compare {first[:3]}{mark}{first[3:]} to {second[:3]}{mark}{second[3:]}"


_KINDS: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    "words of more than 100 letters": lambda chance: _with_two(chance, lambda: _word(chance, _LATIN, 120)),
    "words in letters it does not know": lambda chance: _with_two(chance, lambda: _word(chance, _CHEROKEE, 5)),
    "accents": _accents,
    "characters that cannot be seen": _invisible,
}


async def test_words_unknown_to_the_embedder_are_never_a_match(
    starter: Processes, llm: FaultyLlm, report: Report, full_size: bool
) -> None:
    cache = await starter.start("cache")
    gateway = await starter.gateway(llm.address, cache_address=cache.spec.address, stages=PATIENT_LOOKUPS)
    stores = refused = 0
    async with asking(gateway.spec.address) as caller:
        for kind, pair in _KINDS.items():
            chance = random.Random(kind)
            number = _PAIRS_AT_FULL_SIZE if full_size else _PAIRS
            pairs = [tuple(map(_ENGLISH.format, pair(chance))) for _ in range(number)]
            with report.case(37, f"questions that differ only in {kind}") as row:
                unread = set[int]()  # pairs with a question in no language that the embedder knows
                for questions in ([stored for stored, _ in pairs], [asked for _, asked in pairs]):
                    outcomes = await _ask(caller, questions)
                    unread |= {at for at, each in enumerate(outcomes) if each.final.cache.reason == "language"}
                    assert not any(outcome.final.cache.verdict in _HITS for outcome in outcomes)
                    stores += len(pairs)
                    await until(lambda stores=stores: _stored(cache.spec.address, stores))
                row.count(*outcomes)
                assert all(outcome.ok for outcome in outcomes)
                refused += number - len(unread)
                assert len(unread) <= number / 2
                assert (await stats(cache.spec.address)).refused >= refused  # candidates that a rule refused


async def _ask(caller: Asker, questions: list[str]) -> list[Outcome]:
    room = asyncio.Semaphore(_AT_ONCE)

    async def ask(question: str) -> Outcome:
        async with room:
            return await caller.ask(question, cache=_NEAR)

    return await asyncio.gather(*map(ask, questions))


async def _stored(address: str, count: int) -> bool:
    return (await stats(address)).stores >= count
