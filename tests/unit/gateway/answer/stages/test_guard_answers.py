"""Answers that a guard looks through."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.errors import GuardRefused
from services.gateway.settings.guard import GuardSettings
from services.runtime.errors import Unavailable
from tests.unit.gateway.answer.scene import ACME, Scene
from tests.unit.gateway.answer.stages.guarded import FILTERED, KEY, guarded, made, said, searching, streamed
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, ScriptedRoutes, finish, text
from tests.unit.gateway.scripted_tools import calls

pytestmark = pytest.mark.paused

OFFERED = [pb.MeshTool(name="search", offered=True)]


async def test_an_answer_with_personal_data_is_not_stored():
    scene = guarded(None, finish("Write to anna@example.com."), personal="mask")
    assert (await scene.final()).text == "Write to anna@example.com."
    assert scene.write_behind.stored == []


async def test_whole_sentences_are_sent_with_personal_data_masked():
    words = ["He", "llo. Wri", "te to anna@exa", "mple.com", " today", ". Bye"]
    scene = guarded(None, *(text(each) for each in words), finish("!"), answer_personal="mask")
    deltas, final = await streamed(scene)
    assert "".join(deltas) == final.text == "Hello. Write to [email 1] today. Bye!"
    assert [each.strip() for each in deltas] == ["Hello.", "Write to [email 1] today.", "Bye!"]
    assert (made(final), list(final.degraded)) == ([("guard", "masked")], ["guard:masked"])
    assert scene.write_behind.stored == []
    assert final.usage.completion_tokens == 3


async def test_an_answer_ends_before_a_secret_and_what_was_written_is_paid():
    words = ["Sure. ", "The key is ", "AKIAIOSFODNN7EXAMPLE", ". ", "More."]
    scene = guarded(None, *(text(each) for each in words), 5.0, finish("!"), answer_secrets="end")
    deltas, final = await streamed(scene)
    assert ("".join(deltas), final.finish_reason) == ("Sure. The key is ", FILTERED)
    assert made(final) == [("guard", "ended")]
    assert final.usage.completion_tokens >= 4
    assert scene.write_behind.stored == []


async def test_the_cut_text_of_a_late_model_is_looked_through_as_well():
    scene = guarded(None, text("Write to anna@example.com"), None, answer_personal="mask")
    deltas, final = await streamed(scene)
    assert deltas == ["Write to [email 1]"]
    assert final.finish_reason == chat_pb2.FINISH_REASON_BUDGET


async def test_an_answer_of_the_cache_is_looked_through_as_well():
    stored = cache_pb2.Answer(text="Call Project Titan.", model="m", finish_reason=chat_pb2.FINISH_REASON_STOP)
    found = cache_pb2.LookupResponse(verdict=cache_pb2.VERDICT_EXACT, answer=stored, key="k", ttl_ms=9_000)
    scene = guarded(ScriptedCache(found), denied_phrases=["project titan"])
    deltas, final = await streamed(scene)
    assert (deltas, final.finish_reason) == (["Call [withheld 1]."], chat_pb2.FINISH_REASON_STOP)


async def test_thoughts_are_looked_through_before_the_text():
    thinking = llm_pb2.GenerateResponse(reasoning="anna@example.com asks", tokens=1)
    scene = guarded(None, thinking, text("Hello"), finish("."), answer_personal="mask")
    final = await scene.final()
    assert (final.reasoning, final.text) == ("[email 1] asks", "Hello.")


async def test_thoughts_around_a_text_hold_no_finding_together():
    thoughts = [llm_pb2.GenerateResponse(reasoning=each, tokens=1) for each in ("Pay 4111 1111 ", "1111 1111 now.")]
    scene = guarded(None, thoughts[0], text("Well. "), thoughts[1], finish("Paid."), answer_personal="mask")
    final = await scene.final()
    assert (final.reasoning, final.text) == ("Pay 4111 1111 [card 1] now.", "Well. Paid.")


async def test_texts_around_a_call_of_the_callers_tool_hold_no_finding_together():
    call = llm_pb2.GenerateResponse(tool_calls=[chat_pb2.ToolCallDelta(id="a", name="clock", arguments="{}")])
    scene = guarded(None, text("Write to anna@exa"), call, text("mple.com"), finish(), answer_personal="mask")
    deltas, final = await streamed(scene)
    assert "".join(deltas) == final.text == "Write to anna@exa[email 1]"


async def test_log_probabilities_never_spell_what_is_hidden():
    tokens = [chat_pb2.TokenLogprob(token=each) for each in ("anna@example.com", ".")]
    spelled = llm_pb2.GenerateResponse(text="anna@example.com. So", tokens=2, logprobs=tokens)
    fine = llm_pb2.GenerateResponse(text=" it is.", tokens=1, logprobs=[chat_pb2.TokenLogprob(token="it")])
    final = await guarded(None, spelled, fine, finish(), answer_personal="mask").final()
    assert (final.text, [each.token for each in final.logprobs]) == ("[email 1]. So it is.", ["it"])


@pytest.mark.parametrize(("late", "ends"), [("open", chat_pb2.FINISH_REASON_STOP), ("closed", FILTERED)])
async def test_a_denied_pattern_that_is_too_slow_does_what_the_setting_says(late: str, ends: int):
    slow = r"(a{1,14}){1,14}b"
    scene = guarded(None, text(f"Fine. {'a' * 250}. "), finish("Yes."), denied_patterns=[slow], pattern_ms=1, late=late)
    deltas, final = await streamed(scene)
    assert (final.finish_reason, list(final.degraded)) == (ends, ["guard:late"])
    assert ("guard", "late") in made(final)
    assert ("Yes." in "".join(deltas)) is (late == "open")


async def test_equal_questions_share_a_generation_and_each_is_looked_through():
    scene = guarded(None, 0.01, text("Write to anna@example.com."), finish(" Bye."), answer_personal="mask")
    first, second = await asyncio.gather(scene.final(), scene.final())
    assert first.text == second.text == "Write to [email 1]. Bye."
    assert len(scene.llms["small"].calls) == 1


async def test_a_cascades_answer_is_looked_through():
    script = finish("Write to anna@example.com.")
    scene = Scene(None, ScriptedRoutes(("quick", "better")), quick=ScriptedLlm(script), better=ScriptedLlm(script))
    scene.tenant = replace(ACME, guard=GuardSettings(answer_personal="mask"))
    final = await scene.final(cascade=pb.Cascade())
    assert (final.text, final.model) == ("Write to [email 1].", "quick")


async def test_a_judges_words_are_not_reported_for_a_tenant_with_a_guard():
    better = ScriptedLlm(scripts=[[finish("anna@example.com lies.")], [finish("Paris.")]])
    scene = Scene(None, ScriptedRoutes(("quick", "better")), quick=ScriptedLlm(finish("Rome.")), better=better)
    scene.tenant = replace(ACME, guard=GuardSettings(answer_personal="mask"))
    final = await scene.final(cascade=pb.Cascade(verifiers=[pb.VERIFIER_JUDGE]))
    assert final.text == "Paris."
    assert "quick: the judge rejects the answer" in {made.reason for made in final.decisions}
    assert "anna" not in str(final)


async def test_a_request_may_only_be_stricter():
    stricter = pb.GuardPolicy(answer_personal=pb.GUARD_ACTION_REFUSE, secrets=pb.GUARD_ACTION_MASK)
    scene = guarded(None, finish("Hi. anna@example.com."), answer_personal="mask", secrets="refuse")
    final = await scene.final(guard=stricter)
    assert (final.text, final.finish_reason) == ("Hi. ", FILTERED)
    with pytest.raises(GuardRefused):
        await scene.final(messages=said(KEY), guard=stricter)


SPLIT = ([text("Write to anna@exa"), calls(("search", {}))], [text("mple"), finish(".com.")])


async def test_a_text_that_an_agent_continues_after_a_call_is_one_text():
    source, scene = searching(answer_personal="mask", script=SPLIT)
    deltas, final = await streamed(scene, mesh_tools=OFFERED)
    assert "".join(deltas) == final.text == "Write to [email 1]."
    assert len(source.calls) == 1


async def test_no_tool_is_called_after_a_text_that_ends_the_answer():
    script = ([text("Write to anna@example.com"), calls(("search", {}))], [finish(" or not.")])
    source, scene = searching(answer_personal="end", script=script)
    _, final = await streamed(scene, mesh_tools=OFFERED)
    assert (final.text, final.finish_reason, source.calls) == ("Write to ", FILTERED, [])


async def test_no_call_of_the_callers_tool_follows_a_text_that_ends_the_answer():
    _, scene = searching(answer_personal="end", script=[[text("Write to anna@example.com"), calls(("door", {}))]])
    _, final = await streamed(scene, mesh_tools=OFFERED, tools=[chat_pb2.Tool(name="door")])
    assert (final.text, final.finish_reason, list(final.tool_calls)) == ("Write to ", FILTERED, [])


async def test_the_text_that_is_held_is_sent_if_the_model_breaks_off_after_a_call():
    script = ([text("It rains in Os"), calls(("search", {}))], [text("lo"), Unavailable("gone")])
    _, scene = searching(answer_personal="mask", script=script)
    deltas, final = await streamed(scene, mesh_tools=OFFERED)
    assert "".join(deltas) == final.text == "It rains in Oslo"
