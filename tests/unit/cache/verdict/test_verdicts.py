"""The layers between a near question and a hit."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable

import pytest

from services.cache.verdict.verdicts import ByCosine, ByScore, Judged, Least, Verdicts
from services.runtime.deadline import Deadline
from tests.unit.cache.verdict.made import made

SURE = 5.0  # as a logit, a score of 0.993
ASKED, STORED = "How do I get a new password?", "How can I reset my password?"


class Scripted:
    """A verifier that says what it is told, or waits to be let go."""

    def __init__(self, says: float | Exception | None = SURE, gate: threading.Event | None = None):
        self._says, self._gate = says, gate
        self.read: list[tuple[str, str]] = []

    def logit(self, asked: str, stored: str) -> float | None:
        self.read.append((asked, stored))
        if self._gate:
            self._gate.wait(10)
        if isinstance(self._says, Exception):
            raise self._says
        return self._says


OpenVerdicts = Callable[..., ByScore]


@pytest.fixture
async def by_score() -> AsyncIterator[OpenVerdicts]:
    opened: list[ByScore] = []

    def open_verdicts(verifier: Scripted | None, wrong: float = 0.01, timeout_s: float = 5.0) -> ByScore:
        opened.append(ByScore(made(), verifier, wrong, lambda a, b: "", timeout_s))
        return opened[-1]

    yield open_verdicts
    for verdicts in opened:
        verdicts.close()


async def judge(verdicts: Verdicts, asked: str = ASKED, stored: str = STORED, similarity: float = 0.9) -> Judged:
    return await verdicts.judge(asked, stored, "acme", similarity, Deadline.never())


async def test_by_cosine_the_score_is_the_similarity() -> None:
    verdicts = ByCosine(0.9, lambda a, b: "")
    assert await judge(verdicts, similarity=0.97) == Judged(0.97)


async def test_by_cosine_a_doubt_is_told_beside_the_similarity_and_a_difference_refuses() -> None:
    verdicts = ByCosine(0.9, lambda a, b: "")
    judged = await judge(verdicts, "Who leads Acme in Rome?", "Who leads Acme in Oslo?", 0.97)
    assert judged == Judged(0.97, "", ("names differ",))
    assert (await judge(verdicts, "Who leads Acme 7?", "Who leads Globex 8?", 0.97)).refused == "numbers differ"


async def test_by_cosine_a_request_may_have_its_own_threshold() -> None:
    verdicts = ByCosine(0.9, lambda a, b: "")
    asked = [verdicts.least(min_similarity, threshold=0.92) for min_similarity in (None, 0.6, 1.0)]
    assert asked == [Least(0.92, 0.92), Least(0.6, 0.6), Least(1.0, 1.0)]


async def test_the_verifier_decides_where_embeddings_are_near(by_score: OpenVerdicts) -> None:
    assert (await judge(by_score(Scripted(SURE)))).score > 0.99
    assert (await judge(by_score(Scripted(-SURE)))).score < 0.01


async def test_what_raises_a_doubt_is_left_to_the_verifier(by_score: OpenVerdicts) -> None:
    verifier = Scripted(SURE)
    judged = await judge(by_score(verifier), "Who leads Acme in Rome?", "Who leads Acme in Oslo?")
    assert judged.refused == ""
    assert verifier.read == [("Who leads Acme in Rome?", "Who leads Acme in Oslo?")]


async def test_what_differs_is_never_shown_to_the_verifier(by_score: OpenVerdicts) -> None:
    verifier = Scripted(SURE)
    assert (await judge(by_score(verifier), "What is 7 plus 5?", "What is 7 plus 6?")).refused == "numbers differ"
    assert not verifier.read


async def test_one_text_written_otherwise_needs_no_verifier(by_score: OpenVerdicts) -> None:
    verifier = Scripted(-SURE)
    assert await judge(by_score(verifier), "reset  my Password", "Reset my password") == Judged(1.0)
    assert not verifier.read


@pytest.mark.parametrize("says", [None, RuntimeError("the model broke")])
async def test_a_verifier_that_cannot_say_has_said_no(by_score: OpenVerdicts, says: Exception | None) -> None:
    assert (await judge(by_score(Scripted(says)))).refused == "it could not be verified"


async def test_a_late_verifier_has_said_no_and_the_next_is_asked_again(by_score: OpenVerdicts) -> None:
    gate = threading.Event()
    verdicts = by_score(Scripted(SURE, gate), timeout_s=0.02)
    try:
        assert (await judge(verdicts)).refused == "it could not be verified"
    finally:
        gate.set()
    slow_enough = by_score(Scripted(SURE), timeout_s=5)
    assert not (await judge(slow_enough)).refused


async def test_no_request_loosens_what_was_certified(by_score: OpenVerdicts) -> None:
    verdicts = by_score(None)
    asked = [verdicts.least(min_similarity, verdicts.threshold) for min_similarity in (None, 0.5, 0.97)]
    assert asked == [Least(0.75, 0.9), Least(0.75, 0.9), Least(0.97, 0.9)]


async def test_who_allows_for_fewer_wrong_hits_gets_the_threshold_that_was_certified_for_them(
    by_score: OpenVerdicts,
) -> None:
    verdicts = by_score(None)
    assert [verdicts.allowing(wrong) for wrong in (0.5, 0.01)] == [0.9, 0.9]
    assert verdicts.allowing(0.001) > 1


async def test_without_a_certified_threshold_nothing_is_a_hit(by_score: OpenVerdicts) -> None:
    assert by_score(None, wrong=0.001).threshold > 1
