"""Which lookups are drawn to be judged, and what comes of a verdict, through the contract."""

from __future__ import annotations

import pytest

from hedgerow.cache.v1 import cache_pb2
from services.cache.answers import Verdict
from services.cache.semantic_match.thresholds import Thresholds
from services.cache.semantic_match.traffic import Traffic
from services.cache.semantic_match.verification import Verification
from services.cache.servicer import CacheServicer
from services.runtime.errors import InvalidInput
from tests.unit.cache.asking import ANSWER, CALL, CAPITAL, NEVER, REWORDED, served, store
from tests.unit.cache.conftest import OpenCache, identity, question

ACME = Traffic("acme")

UNLIKE, NEAR_MISS = "an entirely unrelated thing", 0.99


def draw_all(default: float = 0.8) -> Verification:
    return Verification(Thresholds(default, 0.01), share=1.0)


async def look_up(servicer: CacheServicer, text: str, **fields: object) -> cache_pb2.LookupResponse:
    return await servicer.Lookup(cache_pb2.LookupRequest(question=question(text), **fields), CALL)


@pytest.mark.parametrize("threshold", [0.8, NEAR_MISS])
async def test_hits_and_near_misses_are_sampled_with_all_that_a_judge_needs(
    open_cache: OpenCache, threshold: float
) -> None:
    servicer = served(open_cache(verification=draw_all(threshold)))
    stored = cache_pb2.StoreRequest(question=question(CAPITAL.asked), answer=ANSWER)
    key = (await servicer.Store(stored, CALL)).key
    found = await look_up(servicer, REWORDED.asked)
    sample = found.sample
    assert (found.verdict == cache_pb2.VERDICT_SEMANTIC) == sample.accepted == (threshold == 0.8)
    assert (sample.key, sample.asked, sample.answer) == (key, CAPITAL.asked, ANSWER)
    assert sample.score == found.similarity


async def test_only_candidates_are_sampled_whether_or_not_they_are_given(open_cache: OpenCache) -> None:
    tosses: list[float] = []

    def toss() -> float:
        tosses.append(0.5)
        return 0.5

    bench = open_cache(verification=Verification(Thresholds(0.8, 0.01), share=0.5, toss=toss))
    servicer = served(bench)
    await store(bench, CAPITAL, ANSWER.SerializeToString())
    for text, min_similarity, tossed in (
        (CAPITAL.asked, None, 0),  # exact
        (UNLIKE, None, 0),
        ("what is the capital of france please 7", None, 0),  # its facts differ
        (REWORDED.asked, 1, 0),
        (REWORDED.asked, None, 1),
        (REWORDED.asked, NEAR_MISS, 1),
    ):
        tosses.clear()
        found = await look_up(servicer, text, min_similarity=min_similarity)
        assert len(tosses) == tossed
        assert not found.HasField("sample")  # 0.5 is not below 0.5


async def test_without_a_share_nothing_below_the_threshold_is_looked_at(open_cache: OpenCache) -> None:
    bench = open_cache(verification=Verification(Thresholds(NEAR_MISS, 0.01)))
    await store(bench, CAPITAL)
    found = await bench.answers.lookup(REWORDED, None, NEVER)
    assert (found.candidate, found.sample) == (False, None)
    assert bench.answers.verification.thresholds.of(ACME) == NEAR_MISS


async def test_a_hit_that_is_judged_wrong_never_comes_again_and_a_near_miss_changes_no_entry(
    open_cache: OpenCache,
) -> None:
    servicer = served(bench := open_cache(verification=draw_all()))
    await store(bench, CAPITAL, ANSWER.SerializeToString())
    near = (await look_up(servicer, REWORDED.asked, min_similarity=NEAR_MISS)).sample
    report = cache_pb2.ReportVerdictRequest(tenant="acme", sample=near)
    assert not (await servicer.ReportVerdict(report, CALL)).tightened
    hit = await look_up(servicer, REWORDED.asked)
    assert hit.verdict == cache_pb2.VERDICT_SEMANTIC
    theirs = cache_pb2.ReportVerdictRequest(tenant="globex", sample=hit.sample)
    assert not (await servicer.ReportVerdict(theirs, CALL)).tightened
    assert (await look_up(servicer, REWORDED.asked)).verdict == cache_pb2.VERDICT_SEMANTIC
    report = cache_pb2.ReportVerdictRequest(tenant="acme", sample=hit.sample)
    assert (await servicer.ReportVerdict(report, CALL)).tightened
    assert (await look_up(servicer, REWORDED.asked)).verdict == cache_pb2.VERDICT_MISS
    assert bench.answers.verification.thresholds.measured.wrong == 2


async def test_a_question_refused_by_a_rule_is_no_candidate_and_the_next_is(open_cache: OpenCache) -> None:
    bench = open_cache(verification=draw_all())
    for text in (CAPITAL.asked, refused := f"{REWORDED.asked} 7"):
        await store(bench, identity(text))
    found = await bench.answers.lookup(identity(f"{REWORDED.asked} 8"), None, NEVER)
    assert (found.verdict, found.refused, found.sample) == (Verdict.MISS, "numbers differ", None)
    found = await bench.answers.lookup(REWORDED, None, NEVER)
    assert found.sample
    assert found.sample.asked == CAPITAL.asked != refused


async def test_a_tenant_without_hits_is_still_sampled_and_gets_them_back(open_cache: OpenCache) -> None:
    bench = open_cache(verification=draw_all())
    thresholds = bench.answers.verification.thresholds
    await store(bench, CAPITAL)
    for _ in range(200):
        thresholds.verify(ACME, 1.0, True, right=False)
    assert thresholds.of(ACME) > 1
    found = await bench.answers.lookup(REWORDED, None, NEVER)
    assert (found.verdict, found.sample and found.sample.accepted) == (Verdict.MISS, False)
    theirs = identity(CAPITAL.asked, tenant="globex")
    await store(bench, theirs)
    found = await bench.answers.lookup(identity(REWORDED.asked, tenant="globex"), None, NEVER)
    assert found.verdict is Verdict.SEMANTIC
    for _ in range(6_000):
        thresholds.verify(ACME, 0.76, False, right=True)
    assert (await bench.answers.lookup(REWORDED, None, NEVER)).verdict is Verdict.SEMANTIC


@pytest.fixture
async def two(open_cache: OpenCache) -> CacheServicer:
    """A cache with an answer of a tenant's in each of two categories, and one of another tenant's."""
    servicer = served(open_cache(verification=draw_all(0.8)))
    for tenant, category in (("acme", "dosages"), ("acme", "chat"), ("globex", "dosages")):
        asked = question(CAPITAL.asked, tenant, category=category)
        await servicer.Store(cache_pb2.StoreRequest(question=asked, answer=ANSWER), CALL)
    return servicer


async def verdict(
    servicer: CacheServicer, category: str, tenant: str = "acme", **fields: object
) -> cache_pb2.LookupResponse:
    asked = question(REWORDED.asked, tenant, category=category)
    return await servicer.Lookup(cache_pb2.LookupRequest(question=asked, **fields), CALL)


async def report(servicer: CacheServicer, sample: cache_pb2.Sample, tenant: str = "acme", **fields: object) -> None:
    """As one that was not given, so that its entry stays as it is."""
    sample.accepted = False
    await servicer.ReportVerdict(cache_pb2.ReportVerdictRequest(tenant=tenant, sample=sample, **fields), CALL)


async def statistics(servicer: CacheServicer, tenant: str = "acme") -> dict[str, tuple[bool, int]]:
    """Whether hits of each category are off, and how many samples count for it."""
    stats = await servicer.GetStats(cache_pb2.GetStatsRequest(tenant=tenant), CALL)
    assert stats.threshold == 0.8
    return {each.category: (each.threshold > 1, each.verified) for each in stats.category_thresholds}


async def test_a_sample_says_of_which_category_it_is_and_counts_for_that_alone(two: CacheServicer) -> None:
    for category in ("dosages", "chat"):
        found = await verdict(two, category)
        assert (found.verdict, found.sample.category) == (cache_pb2.VERDICT_SEMANTIC, category)
        for _ in range(60):
            found.sample.score = 1.0
            await report(two, found.sample, right=category == "chat")
    assert await statistics(two) == {"chat": (False, 60), "dosages": (True, 60)}
    assert await statistics(two, "globex") == {}
    assert (await verdict(two, "dosages")).verdict == cache_pb2.VERDICT_MISS
    assert (await verdict(two, "chat")).verdict == cache_pb2.VERDICT_SEMANTIC
    assert (await verdict(two, "dosages", "globex")).verdict == cache_pb2.VERDICT_SEMANTIC


async def test_a_report_changes_no_category_of_the_same_name_of_another_tenant(two: CacheServicer) -> None:
    sample = (await verdict(two, "dosages")).sample
    for _ in range(100):
        sample.score = 1.0
        await report(two, sample, tenant="mallory")
    assert await statistics(two) == {"dosages": (False, 0)}
    assert (await verdict(two, "dosages")).verdict == cache_pb2.VERDICT_SEMANTIC


async def test_a_lookup_that_allows_for_fewer_wrong_hits_has_its_category_tightened_and_no_other(
    open_cache: OpenCache,
) -> None:
    """Five of 600 verdicts are wrong, with a similarity above that of the looked-up question."""
    bench = open_cache(verification=draw_all(0.8))
    servicer, thresholds = served(bench), bench.answers.verification.thresholds
    for category in ("dosages", "chat"):
        stored = cache_pb2.StoreRequest(question=question(CAPITAL.asked, category=category), answer=ANSWER)
        await servicer.Store(stored, CALL)
        for number in range(600):
            for candidate in (True, False, False, False):
                thresholds.look_up(Traffic("acme", category), candidate)
            thresholds.verify(Traffic("acme", category), 0.999, True, right=number > 4)
    assert (await verdict(servicer, "dosages", max_wrong=0.9)).verdict == cache_pb2.VERDICT_SEMANTIC
    assert (await verdict(servicer, "dosages", max_wrong=0.00001)).verdict == cache_pb2.VERDICT_MISS
    assert (await verdict(servicer, "chat")).verdict == cache_pb2.VERDICT_SEMANTIC
    assert (await verdict(servicer, "dosages")).verdict == cache_pb2.VERDICT_SEMANTIC


@pytest.mark.parametrize("max_wrong", [0.0, -0.1, 1.1, float("nan")])
async def test_a_share_that_is_none_is_refused(open_cache: OpenCache, max_wrong: float) -> None:
    with pytest.raises(InvalidInput, match="max_wrong: above 0, at most 1, got"):
        await look_up(served(open_cache()), CAPITAL.asked, max_wrong=max_wrong)


async def test_a_category_that_is_too_long_is_refused(two: CacheServicer) -> None:
    with pytest.raises(InvalidInput, match=r"question\.category: at most 64 characters, got 65 characters"):
        await verdict(two, "c" * 65)
    with pytest.raises(InvalidInput, match=r"sample\.category: at most 64 characters, got 65 characters"):
        await report(two, cache_pb2.Sample(key="0" * 64, category="c" * 65))


@pytest.mark.parametrize(
    "sample", [{"key": "0"}, {"score": 1.1}, {"score": float("nan")}], ids=["key", "score", "not a number"]
)
async def test_a_sample_that_is_none_is_refused(open_cache: OpenCache, sample: dict[str, object]) -> None:
    servicer = served(open_cache())
    request = cache_pb2.ReportVerdictRequest(tenant="acme", sample=cache_pb2.Sample(**{"key": "0" * 64, **sample}))
    with pytest.raises(InvalidInput, match=r"sample\."):
        await servicer.ReportVerdict(request, CALL)
