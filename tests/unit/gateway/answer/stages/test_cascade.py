from __future__ import annotations

import asyncio
from functools import partial

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.answer.model_call import Tried
from services.gateway.answer.runner import AnswerRunner
from services.gateway.answer.stages.cascade import refused
from services.gateway.settings.generation import CascadeSettings
from services.runtime.errors import Exhausted, NotSupported, TooLate, Unavailable
from tests.unit.gateway.answer.scene import MISS, Scene, outcomes
from tests.unit.gateway.answer.stages.cascades import LENGTH, STOP, cascading, made
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, ScriptedRoutes, finish, text

pytestmark = pytest.mark.paused

RULES, FORM, LOGPROBS, JUDGE = pb.VERIFIER_RULES, pb.VERIFIER_FORM, pb.VERIFIER_LOGPROBS, pb.VERIFIER_JUDGE


async def test_a_fast_answer_that_will_do_is_the_answer_and_the_better_model_is_not_asked():
    scene = cascading(0.05, text("Pa"), finish("ris."), cache=ScriptedCache(MISS))
    final = await scene.final(cascade=pb.Cascade())
    assert (final.text, final.model, final.finish_reason) == ("Paris.", "quick", STOP)
    assert not scene.llms["better"].calls
    assert made(final) == [("cascade", "passed")]
    assert outcomes(final) == {"cache": "OK", "router": "OK", "cascade": "OK"}
    assert (final.usage.prompt_tokens, final.usage.completion_tokens) == (7, 3)
    assert final.cost_usd == pytest.approx((7 + 2 * 3) / 1e6)
    assert scene.billed == [10]
    assert scene.write_behind.stored[0].answer.model == "quick"
    assert not final.degraded


async def test_a_fast_answer_that_another_replica_has_finished_is_reported_as_resumed_with_the_usage_of_all_of_it():
    quick = [ScriptedLlm(text("Pa"), 0.01, Unavailable("quick: broke")), ScriptedLlm(finish("ris."))]
    scene = Scene(
        ScriptedCache(MISS),
        ScriptedRoutes(("quick", "better")),
        policies={"retry": {"max_share": 1}},
        quick=quick,
        better=ScriptedLlm(finish("It is Paris.")),
    )
    final = await scene.final(cascade=pb.Cascade())
    assert (final.text, final.model, final.degraded) == ("Paris.", "quick", ["llm:resumed"])
    assert (final.usage.prompt_tokens, final.usage.completion_tokens) == (6, 4)  # as another stage reports it
    assert not scene.write_behind.stored


async def test_nothing_is_streamed_before_it_has_passed():
    scene = cascading(text("Pa"), 0.05, finish("ris. I don't know."))
    deltas = [event.delta.text for event in await scene.events(cascade=pb.Cascade()) if event.HasField("delta")]
    assert "".join(deltas) == "It is Paris."


async def test_an_answer_that_will_not_do_costs_both_and_the_better_ones_is_given():
    scene = cascading(finish("I don't know."), cache=ScriptedCache(MISS))
    final = await scene.final(cascade=pb.Cascade())
    assert (final.text, final.model) == ("It is Paris.", "better")
    assert made(final) == [("cascade", "escalated")]
    assert final.decisions[0].reason == 'quick: the answer says "I don\'t know"'
    assert outcomes(final)["cascade"] == "REPLACED"
    assert final.cost_usd == pytest.approx(2 * (7 + 2 * 3) / 1e6)
    assert scene.billed == [20]
    assert scene.write_behind.stored[0].answer.model == "better"


@pytest.mark.parametrize(
    "quick",
    [
        (Unavailable("quick: gone"),),
        (Exhausted("quick: full"),),
        (NotSupported("top_logprobs"),),
        (text("Pa"), Unavailable("quick: broke")),
        (text("Pa"), 0.05, finish("ris", LENGTH)),
        (None,),  # silent
    ],
)
async def test_a_fast_model_that_fails_is_as_if_there_had_been_none(quick: tuple[object, ...]):
    scene = cascading(*quick)
    final = await scene.final(cascade=pb.Cascade())
    assert (final.text, final.model) == ("It is Paris.", "better")
    assert ("cascade", "escalated") in made(final)
    assert not [label for label in final.degraded if label.startswith("llm")]


async def test_a_fast_model_has_its_share_of_the_time_and_no_more():
    scene = cascading(None)
    final = await scene.final(cascade=pb.Cascade())
    spent = {stage.name: stage.spent_ms for stage in final.stages}
    assert 400 <= spent["cascade"] < 420  # and what stages before it have left
    assert final.total_ms == pytest.approx(500, abs=30)
    hurried = await cascading(None).final(cascade=pb.Cascade(), first_token_budget_ms=500)
    assert {stage.name: stage.spent_ms for stage in hurried.stages}["cascade"] == pytest.approx(200, abs=5)
    assert hurried.text == "It is Paris."


async def test_a_judge_has_what_the_fast_model_has_left_of_that_share():
    better = ScriptedLlm(scripts=[[None], [finish("It is Paris.")]])
    final = await cascading(0.3, finish("Paris."), better=better).final(cascade=pb.Cascade(verifiers=[RULES, JUDGE]))
    assert {stage.name: stage.spent_ms for stage in final.stages}["cascade"] == pytest.approx(400, abs=20)
    assert final.text == "It is Paris."


async def test_equal_questions_share_the_first_try():
    scene = cascading(0.05, finish("Paris."), cache=ScriptedCache(MISS))
    both = await asyncio.gather(scene.final(cascade=pb.Cascade()), scene.final(cascade=pb.Cascade()))
    assert [final.text for final in both] == ["Paris.", "Paris."]
    assert [("single_flight", "joined") in made(final) for final in both] == [False, True]
    assert len(scene.llms["quick"].calls) == 1
    assert len(scene.write_behind.stored) == 1


async def test_answers_of_a_cascade_are_shared_with_cascades_of_the_same_checks_alone():
    cache = ScriptedCache(MISS)
    scene = cascading(finish("Paris."), cache=cache)
    rules = pb.Cascade(verifiers=[pb.VERIFIER_RULES])
    at_once = pb.Cascade(verifiers=[pb.VERIFIER_RULES], at_once=True)
    for each in (rules, at_once, pb.Cascade(verifiers=[pb.VERIFIER_JUDGE]), pb.Cascade()):
        await scene.final(cascade=each)
    await scene.final()
    of_rules, streamed, *others = [question.SerializeToString() for question in cache.questions]
    assert of_rules == streamed
    assert len({of_rules, *others}) == 4


async def test_an_item_of_a_batch_that_joins_a_generation_gets_its_slot():
    scene, placed = cascading(0.05, finish("Paris.")), []
    answers = [scene.answer(on_slot=partial(placed.append, number), cascade=pb.Cascade()) for number in range(2)]
    await asyncio.gather(*(_read(answer) for answer in answers))
    assert sorted(placed) == [0, 1]
    assert len(scene.llms["quick"].calls) == 1


async def _read(answer: AnswerRunner) -> None:
    async for _ in sent_by(answer.give):
        pass


@pytest.mark.parametrize(
    ("word", "model"), [(" Yes.", "quick"), ("No", "better"), ("yesterday", "better"), ("", "better")]
)
async def test_a_judge_has_the_last_word(word: str, model: str):
    better = ScriptedLlm(finish(word))
    scene = cascading(finish("Paris."), better=better)
    final = await scene.final(cascade=pb.Cascade(verifiers=[RULES, JUDGE]))
    assert final.model == model
    judged = better.requests[0]
    asked = scene.llms["quick"].requests[0]
    assert list(judged.messages[: len(asked.messages)]) == list(asked.messages)
    assert (judged.messages[-2].content, judged.sampling.max_tokens) == ("Paris.", 4)
    assert final.cost_usd == pytest.approx((2 if model == "quick" else 3) * (7 + 2 * 3) / 1e6)
    assert scene.billed == [20 if model == "quick" else 30]


async def test_a_judge_is_not_asked_about_what_has_failed_before():
    scene = cascading(finish("I don't know."))
    await scene.final(cascade=pb.Cascade(verifiers=[JUDGE, RULES]))
    assert len(scene.llms["better"].calls) == 1


async def test_without_its_judge_nothing_passes():
    better = ScriptedLlm(scripts=[[NotSupported("no")], [finish("It is Paris.")]])
    final = await cascading(finish("Paris."), better=better).final(cascade=pb.Cascade(verifiers=[JUDGE]))
    assert (final.text, final.model) == ("It is Paris.", "better")
    assert ("cascade", "escalated") in made(final)


async def test_a_smaller_model_goes_first_however_slow_it_is_at_the_moment():
    better = ScriptedLlm(finish("It is Paris."))
    scene = Scene(None, ScriptedRoutes(("better", "slow")), better=better, slow=ScriptedLlm(finish("Paris.")))
    assert (await scene.final(cascade=pb.Cascade())).model == "slow"


async def test_without_a_smaller_model_there_is_no_cascade():
    scene = Scene()
    final = await scene.final(cascade=pb.Cascade())
    assert outcomes(final)["cascade"] == "SKIPPED"
    assert (final.text, len(scene.llms["small"].calls)) == ("Paris.", 1)


def sure(logprob: float) -> llm_pb2.GenerateResponse:
    return llm_pb2.GenerateResponse(text="Paris.", tokens=1, logprobs=[chat_pb2.TokenLogprob(logprob=logprob)])


@pytest.mark.parametrize(("logprob", "model"), [(-0.1, "quick"), (-0.5, "better")])
async def test_a_model_that_is_not_sure_of_its_words_does_not_pass(logprob: float, model: str):
    scene = cascading(sure(logprob), finish())
    final = await scene.final(cascade=pb.Cascade(verifiers=[LOGPROBS]))
    assert final.model == model
    assert scene.llms["quick"].requests[0].sampling.HasField("top_logprobs")


@pytest.mark.parametrize(
    ("said", "why"),
    [("five", "it is no JSON"), ("[5]", "#/type"), ("[" * 100_000, "it is no JSON"), ('{"total": 5}', "#/required")],
)
@pytest.mark.parametrize("verifiers", [[], [FORM]])
async def test_an_answer_without_its_form_does_not_pass(said: str, why: str, verifiers: list[pb.Verifier]):
    scene = cascading(finish(said), better=ScriptedLlm(finish('{"sum": 5}')))
    cascade = pb.Cascade(verifiers=verifiers)
    final = await scene.final(cascade=cascade, response_format=WANTS_SUM.response_format)
    assert (final.text, final.model) == ('{"sum": 5}', "better")
    assert made(final) == [("cascade", "escalated"), ("form", "valid")]
    assert final.decisions[0].reason == f"quick: {why}"


async def test_a_fast_answer_of_the_form_passes():
    scene = cascading(finish('{"sum": 5}'))
    final = await scene.final(cascade=pb.Cascade(), response_format=WANTS_SUM.response_format)
    assert final.model == "quick"
    assert made(final) == [("cascade", "passed"), ("form", "valid")]


UNSURE = pb.GenerateRequest(cascade=pb.Cascade(min_mean_logprob=-2))
WANTS_SUM = pb.GenerateRequest(
    response_format=chat_pb2.ResponseFormat(json_schema='{"type": "object", "required": ["sum"]}')
)


@pytest.mark.parametrize(
    ("tried", "request_", "verifiers", "why"),
    [
        (Tried(["Paris."], STOP), pb.GenerateRequest(), [], ""),
        (Tried(["  "], STOP), pb.GenerateRequest(), [], "empty answer"),
        (Tried(["Paris"], LENGTH), pb.GenerateRequest(), [RULES], "incomplete answer"),
        (Tried(["I'm not sure."], STOP), pb.GenerateRequest(), [RULES], 'the answer says "I\'m not sure"'),
        (Tried(["I'm not sure."], STOP), pb.GenerateRequest(), [FORM], ""),
        (Tried(['{"sum": 5}'], STOP), WANTS_SUM, [], ""),
        (Tried(["Paris."], STOP), pb.GenerateRequest(), [LOGPROBS], "the model reports no log-probabilities"),
        (
            Tried(["Paris."], STOP, [-1.0]),
            pb.GenerateRequest(),
            [LOGPROBS],
            "a mean log-probability of -1.000, below -0.3",
        ),
        (Tried(["Paris."], STOP, [-1.0]), UNSURE, [LOGPROBS], ""),
    ],
)
def test_the_decision_says_why_an_answer_did_not_pass(
    tried: Tried, request_: pb.GenerateRequest, verifiers: list[int], why: str
):
    asked = pb.GenerateRequest()
    asked.CopyFrom(request_)
    asked.cascade.verifiers.extend(verifiers)
    assert refused(tried, asked, CascadeSettings()) == why


async def test_a_late_one_of_a_cascade_ends_as_any_other():
    scene = cascading(TooLate("quick: late"), better=ScriptedLlm(text("It"), None))
    final = await scene.final(cascade=pb.Cascade())
    assert (final.text, final.finish_reason) == ("It", chat_pb2.FINISH_REASON_BUDGET)
