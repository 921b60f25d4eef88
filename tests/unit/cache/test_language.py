"""Which questions are compared: those in a language that the embedder knows."""

from __future__ import annotations

import pytest

from hedgerow.cache.v1 import cache_pb2
from services.cache.answers import Verdict
from services.cache.semantic_match import language
from tests.unit.cache.asking import ANSWER, CALL, NEVER, served
from tests.unit.cache.conftest import OpenCache, identity, question

READS_ENGLISH = ("en",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What is the capital of France?", ""),
        ("How do I reset my password?", ""),
        ("7 + 5 = ?", ""),
        ("Wie hoch ist mein Kontostand?", "de"),
        ("WIE HOCH IST MEIN KONTOSTAND?", "de"),
        ("¿Qué medicamentos tomo por la noche?", "es"),
        ("私の口座の残高はいくらですか？", "ja"),
        ("ok", "und"),
        ("", ""),
    ],
)
def test_the_language_of_a_text_that_an_english_embedder_does_not_know(text: str, expected: str) -> None:
    assert language.reader(READS_ENGLISH)(text) == expected


def test_an_embedder_of_several_languages_knows_each_of_them() -> None:
    unknown = language.reader(("en", "de"))
    assert [unknown(text) for text in ("Wie hoch ist mein Kontostand?", "How do I reset my password?")] == ["", ""]
    assert unknown("¿Qué medicamentos tomo por la noche?") == "es"
    assert language.reader(())("私の口座の残高はいくらですか？") == "", (
        "with nearly all languages the script is not detected"
    )


def german(text: str) -> str:
    return "de" if "ist" in text.split() else ""


async def test_a_question_in_an_unknown_language_gets_exact_hits_alone(open_cache: OpenCache) -> None:
    bench = open_cache(unknown=german)
    answers, asked = bench.answers, identity("wie hoch ist mein konto bitte")
    await answers.store(asked, b"12 euros", 10_000, NEVER)
    near = await answers.lookup(identity("wie hoch ist mein konto heute"), 0.5, NEVER)
    assert (near.verdict, near.similarity, near.language) == (Verdict.MISS, None, "de")
    exact = await answers.lookup(asked, 0.5, NEVER)
    assert (exact.verdict, exact.language) == (Verdict.EXACT, "")
    assert (answers.stats.unknown_language, bench.engine.embedded) == (1, [])


async def test_no_question_in_a_known_language_gets_the_answer_to_one_in_an_unknown(open_cache: OpenCache) -> None:
    answers = open_cache(unknown=german).answers
    await answers.store(identity("how much is on my account ist"), b"12 euros", 10_000, NEVER)
    found = await answers.lookup(identity("how much is on my account"), 0.5, NEVER)
    assert (found.verdict, found.similarity) == (Verdict.MISS, None)


async def test_the_lookup_says_the_language_unless_the_caller_wants_exact_hits_alone(open_cache: OpenCache) -> None:
    servicer = served(open_cache(unknown=german))
    asked = question("wie hoch ist mein konto")
    reply = await servicer.Lookup(cache_pb2.LookupRequest(question=asked), CALL)
    assert (reply.verdict, reply.language) == (cache_pb2.VERDICT_MISS, "de")
    asked.exact_only = True
    assert not (await servicer.Lookup(cache_pb2.LookupRequest(question=asked), CALL)).language


async def test_an_answer_for_exact_hits_alone_is_not_embedded(open_cache: OpenCache) -> None:
    bench = open_cache()
    servicer = served(bench)
    for exact_only, embedded in ((True, 0), (False, 1)):
        asked = question("what is the capital of france", exact_only=exact_only)
        await servicer.Store(cache_pb2.StoreRequest(question=asked, answer=ANSWER), CALL)
        assert len(bench.engine.embedded) == embedded
