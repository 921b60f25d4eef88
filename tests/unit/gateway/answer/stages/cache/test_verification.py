"""Stored answers that the cache has drawn are judged beside the answers of clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

import pytest

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from services.gateway.admission.identity import Tenant
from services.gateway.answer.background_call import verdict as verdict_of
from services.gateway.answer.stages.cache.verification import CacheVerification
from services.gateway.settings.generation import JudgeSettings
from services.gateway.settings.guard import GuardSettings
from services.runtime.errors import ServiceError, Unavailable
from tests.unit.gateway.answer.scene import ACME, Scene
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, ScriptedRoutes, finish, text
from tests.waiting import until

LYON = cache_pb2.Answer(text="Lyon.", model="m", finish_reason=chat_pb2.FINISH_REASON_STOP)
SAMPLE = cache_pb2.Sample(
    key="f" * 64, score=0.93, accepted=False, asked="What is the capital?", answer=LYON, category="trips"
)
MISS = cache_pb2.LookupResponse(verdict=cache_pb2.VERDICT_MISS, sample=SAMPLE)
HIT = cache_pb2.LookupResponse(verdict=cache_pb2.VERDICT_SEMANTIC, answer=LYON, key="f" * 64, sample=SAMPLE)


@dataclass
class Reports:
    """A cache that takes reports."""

    problem: ServiceError | None = None
    requests: list[cache_pb2.ReportVerdictRequest] = field(default_factory=list)

    async def report(self, request: cache_pb2.ReportVerdictRequest, timeout_s: float, metadata: object) -> bool:
        self.requests.append(request)
        if self.problem:
            raise self.problem
        return True


OpenScene = Callable[..., tuple[Scene, Reports]]


@pytest.fixture
async def judged() -> AsyncIterator[OpenScene]:
    """Scenes whose cache draws a sample; `quick` answers, and `better` judges."""
    opened: list[CacheVerification] = []

    def judged(judge: ScriptedLlm, found: cache_pb2.LookupResponse = MISS, **settings: object) -> tuple[Scene, Reports]:
        llms = {"quick": ScriptedLlm(text("Paris."), finish()), "better": judge}
        scene, reports = Scene(ScriptedCache(found), ScriptedRoutes(("quick", "better")), **llms), Reports()
        backends = scene.backends
        judging = CacheVerification(JudgeSettings(**settings), backends.models, backends.routes, reports)
        scene.backends = replace(backends, verification=judging)
        opened.append(judging)
        return scene, reports

    yield judged
    for judging in opened:
        await judging.close()
        assert not judging._judging


async def settled(scene: Scene) -> None:
    await until(lambda: not scene.backends.verification._judging)


@pytest.mark.parametrize(("said", "right"), [("Yes.", True), ("No, it is not", False)])
@pytest.mark.parametrize("found", [MISS, HIT])
async def test_a_clear_verdict_goes_to_the_cache_after_the_answer_and_costs_the_tenant_nothing(
    judged: OpenScene, said: str, right: bool, found: cache_pb2.LookupResponse
):
    scene, reports = judged(ScriptedLlm(text(said), finish()), found)
    final = await scene.final(model="quick")
    assert final.text == ("Lyon." if found is HIT else "Paris.")
    billed = list(scene.billed)
    await settled(scene)
    drawn = cache_pb2.Sample(key=SAMPLE.key, score=SAMPLE.score, accepted=SAMPLE.accepted, category="trips")
    assert reports.requests == [cache_pb2.ReportVerdictRequest(tenant="acme", sample=drawn, right=right)]
    (asked,) = scene.llms["better"].requests
    assert [message.content for message in asked.messages][:2] == ["What is the capital of France?", "Lyon."]
    assert (asked.cache_salt, asked.sampling.max_tokens) == ("salt", 4)
    assert scene.billed == billed
    assert len(scene.write_behind.stored) == (found is MISS)  # the answer itself


@pytest.mark.parametrize(
    "judge",
    [ScriptedLlm(text("Maybe"), finish()), ScriptedLlm(Unavailable("gone")), ScriptedLlm(finish())],
    ids=["unclear", "failed", "silent"],
)
async def test_a_judge_that_fails_or_is_unclear_reports_nothing(judged: OpenScene, judge: ScriptedLlm):
    scene, reports = judged(judge)
    await scene.final(model="quick")
    await settled(scene)
    assert reports.requests == []


@pytest.mark.paused
async def test_a_judge_that_hangs_delays_no_answer_and_samples_meanwhile_are_dropped(judged: OpenScene):
    scene, reports = judged(ScriptedLlm(None), at_once=1, ms=100)
    for _ in range(3):
        assert (await scene.final(model="quick")).text == "Paris."
    assert len(scene.backends.verification._judging) == 1
    await settled(scene)
    assert (len(scene.llms["better"].requests), reports.requests) == (1, [])


@pytest.mark.paused
async def test_slow_judgements_of_one_tenant_leave_room_for_another(judged: OpenScene):
    scene, _ = judged(ScriptedLlm(None), at_once=2, ms=100)
    for tenant in (ACME, ACME, Tenant("other")):
        scene.tenant = tenant
        await scene.final(model="quick")
    assert list(scene.backends.verification._judging.values()) == ["acme", "other"]
    await settled(scene)


async def test_a_verdict_for_a_cache_that_is_away_is_sent_once_and_no_client_gets_an_error(judged: OpenScene):
    scene, reports = judged(ScriptedLlm(text("yes"), finish()))
    reports.problem = Unavailable("away")
    await scene.final(model="quick")
    await settled(scene)
    assert len(reports.requests) == 1


async def test_without_a_model_of_the_quality_tier_only_a_named_model_judges(judged: OpenScene):
    for named, count in (("", 0), ("quick", 1)):
        scene, _ = judged(ScriptedLlm(), model=named)
        scene.backends.verification._routes = ScriptedRoutes(("quick",))
        await scene.final(model="quick")
        await settled(scene)
        assert len(scene.llms["quick"].requests) == 1 + count


async def test_an_answer_with_secrets_is_shown_to_no_judge(judged: OpenScene):
    scene, _ = judged(ScriptedLlm(text("yes"), finish()))
    scene.tenant = replace(scene.tenant, guard=GuardSettings(secrets="mask"))
    secret = "my password is hunter2secret99, key AKIAIOSFODNN7EXAMPLE"
    asked = [chat_pb2.Message(role=chat_pb2.ROLE_USER, content=secret)]
    await scene.final(model="quick", messages=asked)
    await asyncio.sleep(0)
    assert scene.llms["better"].requests == []


@pytest.mark.parametrize(
    ("said", "verdict"),
    [("yes", True), (" **Yes**", True), ("No.", False), ("Nobody knows", None), ("", None), ("It says yes", None)],
)
def test_only_a_clear_word_is_a_verdict(said: str, verdict: bool | None):
    assert verdict_of(said) is verdict
