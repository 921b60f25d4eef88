from __future__ import annotations

import asyncio

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.backends import Prompts
from services.gateway.answer.summaries import NOTE, Summaries
from services.gateway.labels import Degraded
from services.gateway.settings.prompt import PromptSettings, SystemPromptSettings
from services.runtime.errors import ContextExceeded, NotSupported, TooLate
from services.runtime.question_key import normalized
from tests.unit.gateway.answer.scene import EXACT, MISS, SETTINGS, Scene, outcomes
from tests.unit.gateway.prompt.conversations import WORDY, chatter, conversation, said
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, finish, text, words

pytestmark = pytest.mark.paused

LIMIT = 2_048 - 256  # tokens: the scripted models' context, without what is kept for the answer
LONG = conversation(60, 200)  # 121 messages; of a word each


def asked_of(scene: Scene) -> list[chat_pb2.Message]:
    return list(scene.llms["small"].requests[-1].messages)


async def test_a_short_prompt_has_no_such_stage_and_nothing_is_counted():
    scene = Scene(ScriptedCache(MISS))
    final = await scene.final()
    assert "prompt" not in outcomes(final)
    assert not final.HasField("prompt")
    assert not scene.llms["small"].counts


async def test_a_wordy_system_prompt_is_compressed_and_the_report_has_it():
    scene = Scene(ScriptedCache(MISS))
    messages = [said("system", WORDY), said("user", "Why?")]
    final = await scene.final(messages=messages)
    assert [message.content for message in asked_of(scene)] == ["Answer all to help.", "Why?"]
    assert list(final.prompt.diet) == ["spaces", "phrases", "repeats"]
    assert (final.prompt.tokens_before, final.prompt.tokens_after) == (words(messages), 7)
    assert not final.prompt.estimated
    assert ("prompt", "compressed") in [(made.policy, made.action) for made in final.decisions]
    assert not final.degraded
    (stored,) = scene.write_behind.stored  # under the question as it was asked
    assert stored.question.messages[0].content == normalized(WORDY)


async def test_of_a_very_long_prompt_only_the_beginning_is_compressed():
    scene = Scene()
    scene.settings = SETTINGS.model_copy(update={"prompt": PromptSettings(diet_to_bytes=len(WORDY))})
    await scene.final(messages=[said("system", WORDY), said("system", WORDY), said("user", "Why?")])
    assert [message.content == WORDY for message in asked_of(scene)] == [False, True, False]


async def test_a_conversation_longer_than_the_context_loses_its_oldest_turns():
    scene = Scene(ScriptedCache(MISS))
    final = await scene.final(messages=chatter(40))
    read = asked_of(scene)
    assert words(read) <= LIMIT
    assert [message.content for message in (read[0], read[-1])] == ["Be brief.", "And now?"]
    assert read[1].role == chat_pb2.ROLE_USER
    kept = (len(read) - 2) // 2
    assert final.prompt.dropped_turns == 40 - kept > 0
    assert final.prompt.summary == "none"
    assert final.prompt.tokens_before == words(chatter(40))
    assert list(final.degraded) == [Degraded.PROMPT_SHORTENED]
    assert ("prompt", "shortened") in [(made.policy, made.action) for made in final.decisions]
    assert not scene.write_behind.stored  # it may be less than it could be


@pytest.mark.parametrize("first_is_whole", [True, False])
async def test_a_whole_conversation_and_one_without_its_oldest_turns_share_no_answer(first_is_whole: bool):
    scene = Scene(ScriptedCache(MISS), small=ScriptedLlm(1.0, finish("It rains.")))

    async def answered(whole: bool) -> pb.Final:
        await asyncio.sleep(0 if whole == first_is_whole else 0.05)
        return await scene.final(messages=chatter(40), prompt=pb.PromptPolicy(whole=whole))

    finals = await asyncio.gather(answered(True), answered(False))
    assert [bool(final.prompt.dropped_turns) for final in finals] == [False, True]
    assert sorted(words(request.messages) <= LIMIT for request in scene.llms["small"].requests) == [False, True]


async def test_while_a_conversation_goes_on_its_prompts_share_their_beginning():
    scene, begun = Scene(), []
    for turns in range(20, 50):
        await scene.final(messages=chatter(turns))
        read = asked_of(scene)
        assert words(read) <= LIMIT
        begun.append(read[1].content)
    assert len(set(begun)) <= 10  # of 30 turns; each cut leaves out several at once


async def test_a_prompt_long_in_bytes_and_short_in_tokens_stays_whole():
    scene = Scene()
    final = await scene.final(messages=LONG)
    assert asked_of(scene) == LONG
    assert (final.prompt.dropped_turns, final.prompt.summary) == (0, "")
    assert not final.degraded


async def test_a_question_that_alone_is_too_long_is_refused_with_the_numbers():
    question = said("user", "word " * 2_000)
    with pytest.raises(ContextExceeded) as refused:
        await Scene().final(messages=[said("system", "Be brief."), question])
    assert refused.value.message == (
        "This model's maximum context length is 2048 tokens. However, you requested 2264 tokens (2008 in the messages, "
        "256 in the completion). Please reduce the length of the messages or completion."
    )


async def test_a_question_that_is_too_long_by_an_estimate_alone_is_the_models_to_refuse():
    scene, question = Scene(), said("user", "word " * 2_000)
    scene.llms["small"].uncounted = NotSupported("count_tokens")
    final = await scene.final(messages=[*chatter(3)[:-1], question])
    assert asked_of(scene) == [said("system", "Be brief."), question]
    assert final.prompt.estimated


async def test_room_is_kept_for_the_answer_that_is_asked_for():
    scene = Scene()
    await scene.final(messages=chatter(40), sampling=chat_pb2.Sampling(max_tokens=1_000))
    assert words(asked_of(scene)) <= 2_048 - 1_000


async def test_a_request_for_the_whole_conversation_gets_it_or_the_engines_refusal():
    for policy in (pb.PromptPolicy(whole=True), pb.PromptPolicy(truncation=pb.TRUNCATION_DISABLED)):
        scene = Scene(small=ScriptedLlm(ContextExceeded.of(2_048, 4_003)))
        with pytest.raises(ContextExceeded, match="your messages resulted in 4003 tokens"):
            await scene.final(messages=chatter(40), prompt=policy)
        assert len(asked_of(scene)) == 82


@pytest.mark.parametrize("problem", [NotSupported("count_tokens"), TooLate("small: late")])
async def test_without_a_token_count_a_conversation_is_cut_by_an_estimate_that_the_report_names(problem: Exception):
    scene = Scene()
    scene.llms["small"].uncounted = problem
    final = await scene.final(messages=chatter(40))
    assert words(asked_of(scene)) <= LIMIT
    assert final.prompt.estimated
    assert final.prompt.dropped_turns


class SlowCounts(ScriptedLlm):
    """Counts tokens within 60 ms, if it has that time."""

    async def count_tokens(self, messages, timeout_s, metadata, tools=()) -> int:
        await asyncio.sleep(min(0.06, timeout_s))
        if timeout_s < 0.06:
            raise TooLate("small: late")
        return words(messages)


async def test_all_counts_of_a_prompt_together_have_the_time_of_the_stage():
    final = await Scene(small=SlowCounts(finish("It rains."))).final(messages=chatter(40))
    assert {stage.name: stage.spent_ms for stage in final.stages}["prompt"] <= 101
    assert (final.prompt.estimated, final.text) == (True, "It rains.")


async def test_tool_results_stay_with_their_question_when_turns_are_dropped():
    asked = [
        said("user", "Time?"),
        chat_pb2.Message(role=chat_pb2.ROLE_ASSISTANT, tool_calls=[chat_pb2.ToolCall(id="1", name="clock")]),
        chat_pb2.Message(role=chat_pb2.ROLE_TOOL, content="noon " * 500, tool_call_id="1"),
    ]
    scene = Scene()
    await scene.final(messages=[*chatter(40)[:-1], *asked])
    assert asked_of(scene)[-3:] == asked


SUPPORT = SystemPromptSettings(version="3", default="Help.", complex="Help, step by step.")


@pytest.mark.parametrize(
    ("question", "fields", "system", "reported"),
    [
        ("What is it?", {}, "Help.", "support@3 (default)"),  # no variant for simple ones
        ("Explain how and why it works, step by step.", {}, "Help, step by step.", "support@3 (complex)"),
        ("Explain how and why it works.", {"tier": pb.TIER_FAST}, "Help.", "support@3 (default)"),
    ],
)
async def test_a_kept_system_prompt_comes_first_in_its_variant(question, fields, system, reported):
    scene = Scene(ScriptedCache(MISS), prompts=Prompts(system_prompts={"support": SUPPORT}))
    named = pb.PromptPolicy(system="support")
    final = await scene.final(messages=[said("user", question)], prompt=named, **fields)
    assert [message.content for message in asked_of(scene)] == [system, question]
    assert final.prompt.system == reported


async def test_answers_to_other_system_prompts_are_others():
    edited = SUPPORT.model_copy(update={"simple": "Answer in two sentences."})  # of the same version
    keyed = set()
    for system, kept in (("", SUPPORT), ("support", SUPPORT), ("support", edited)):
        scene = Scene(ScriptedCache(MISS), prompts=Prompts(system_prompts={"support": kept}))
        await scene.final(prompt=pb.PromptPolicy(system=system))
        keyed |= {question.SerializeToString() for question in scene.cache.questions}
    assert len(keyed) == 3


def summed_up(*script: object) -> tuple[Scene, ScriptedLlm]:
    """A scene with a model that sums up."""
    summing = ScriptedLlm(*(script or (text("They spoke of words."), finish())))
    scene = Scene(small=ScriptedLlm(text("Pa"), finish("ris.")), large=summing)
    settings = PromptSettings(summary_model="large")
    prompts = Prompts(summaries=Summaries(settings, scene.backends.models, scene.backends.routes))
    scene = Scene(small=scene.llms["small"], large=summing, prompts=prompts)
    scene.settings = SETTINGS.model_copy(update={"prompt": settings})
    return scene, summing


async def test_the_next_question_finds_a_summary_of_what_is_left_out():
    scene, summing = summed_up()
    first = await scene.final(messages=chatter(40))
    assert first.prompt.summary == "ordered"
    await asyncio.sleep(1)
    (request,) = summing.requests
    assert "word" in request.messages[-1].content
    second = await scene.final(messages=chatter(40))
    assert second.prompt.summary == "kept"
    assert asked_of(scene)[1].content == f"{NOTE}They spoke of words."
    assert words(asked_of(scene)) <= LIMIT
    assert len(summing.requests) == 1


async def test_the_tenant_whose_request_causes_a_summary_pays_for_it():
    scene, _ = summed_up()
    await scene.final(messages=chatter(40))
    await asyncio.sleep(1)
    await scene.final(messages=chatter(40))
    first, second = scene.billed
    assert first > second + 128


async def test_a_summary_that_fails_is_none():
    scene, _ = summed_up(TooLate("large: late"))
    await scene.final(messages=chatter(40))
    await asyncio.sleep(1)
    assert (await scene.final(messages=chatter(40))).prompt.summary == "ordered"
    await asyncio.sleep(1)


async def test_a_cached_answer_waits_for_no_prompt():
    scene = Scene(ScriptedCache(EXACT))
    final = await scene.final(messages=[said("system", WORDY), said("user", "Why?")])
    assert final.text == "Paris."
    assert not scene.llms["small"].requests


def test_a_system_prompt_has_a_length_of_its_own():
    with pytest.raises(ValueError, match="complex: at most 10 tokens, got about 13"):
        SystemPromptSettings(default="Help.", complex="x" * 50, max_tokens=10)


async def test_where_the_newest_turns_have_most_of_the_tokens_more_of_the_oldest_go():
    old = [said(role, "x" * 600) for _ in range(20) for role in ("user", "assistant")]
    new = [said(role, "a " * 100) for _ in range(12) for role in ("user", "assistant")]
    scene = Scene()
    await scene.final(messages=[*old, *new, said("user", "And now?")])
    assert words(asked_of(scene)) <= LIMIT
    assert len(scene.llms["small"].counts) > 3
