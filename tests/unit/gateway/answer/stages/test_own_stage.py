"""Which stages of a deployment's own a gateway takes, and where they stand."""

from __future__ import annotations

import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.question import Question
from services.gateway.answer.inputs import Inputs, Privacy
from services.gateway.answer.plan import make_plan
from services.gateway.answer.registry import STAGES, BadStage, claims, load
from services.gateway.answer.stages.own import OwnStage
from services.gateway.settings.answer_time import StageBudgets


class Account(OwnStage):
    name = "account"


class AfterAudio(OwnStage):
    name, after = "after_audio", ("audio",)


class Impossible(OwnStage):
    name, after = "impossible", ("llm",)


class Taken(OwnStage):
    name = "cache"


class Unknown(OwnStage):
    name, before = "unknown", ("somewhere",)


HERE = __name__


def test_stages_that_read_the_transcript_run_after_audio():
    stages = load([f"{HERE}:Account", f"{HERE}:AfterAudio"])
    wanted = [(name, name == "llm") for name in ("account", "audio", "after_audio", "cache", "router", "llm")]
    wanted.sort(key=lambda each: list(stages).index(each[0]))
    plan = make_plan(claims(StageBudgets(), wanted, stages), 1_000)
    assert plan["account"].starts_ms == 0
    assert set(plan["cache"].stage.after) == {"account", "audio", "after_audio"}
    assert plan["after_audio"].stage.after == ("audio",)
    assert set(plan["llm"].stage.after) >= {"account", "after_audio", "cache", "router"}
    assert plan["router"].stage.after == ("audio",)
    assert load([]) == STAGES


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("nowhere:Stage", "package.module:Class, got nowhere:Stage: No module named 'nowhere'"),
        (f"{HERE}:Missing", "package.module:Class"),
        (f"{HERE}:HERE", "a subclass of OwnStage"),
        (f"{HERE}:Taken", "a name of its own, .* got 'cache'"),
        (f"{HERE}:Unknown", "stages out of audio, .*, got somewhere"),
        (f"{HERE}:Impossible", "cannot be after llm and before guard"),
    ],
)
def test_another_one_is_refused_by_name(place: str, problem: str):
    with pytest.raises(BadStage, match=problem):
        load([place])


def test_context_comes_before_the_cache_knows_the_question():
    inputs = Inputs(Question(pb.GenerateRequest()), Privacy())
    inputs.add_context(["plan: gold"])
    assert inputs.asked.context == ("plan: gold",)
    inputs.cache_key_computed = True
    with pytest.raises(RuntimeError, match="before"):
        inputs.add_context(["late"])
