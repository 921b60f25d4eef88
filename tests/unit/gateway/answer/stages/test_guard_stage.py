from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.errors import GuardLate, GuardRefused
from services.gateway.guard import injection, screen
from services.gateway.settings.answer_time import StageBudget, StageBudgets
from services.runtime.security.private_data import find as find_private_data
from tests.clock import on_paused_loop
from tests.examples import examples
from tests.unit.gateway.answer.scene import EXACT, MISS, STORED, Scene, outcomes
from tests.unit.gateway.answer.stages.guarded import ATTACK, KEY, MINE, guarded, made, said, searching
from tests.unit.gateway.scripted import ScriptedCache
from tests.unit.gateway.scripted_media import ScriptedAudio, senses

pytestmark = pytest.mark.paused


async def test_a_tenant_without_a_guard_has_no_guard_stage():
    final = await Scene(ScriptedCache(MISS)).final(messages=said(ATTACK))
    assert "guard" not in outcomes(final)


async def test_personal_data_in_a_prompt_is_masked_and_equal_data_get_equal_names():
    scene = guarded(personal="mask")
    final = await scene.final(messages=said(MINE, role=chat_pb2.ROLE_USER) + said(f"Again: {MINE} Who is that?"))
    (asked,) = scene.llms["small"].requests
    hidden = "My card is [card 1], write to [email 1]."
    assert [message.content for message in asked.messages] == [hidden, f"Again: {hidden} Who is that?"]
    assert made(final) == [("guard", "masked_input"), ("guard", "bypassed")]
    assert "4111" not in str(final.decisions)


async def test_a_question_with_personal_data_is_neither_looked_up_nor_stored_nor_shared():
    scene = guarded(ScriptedCache(EXACT), personal="mask")
    final = await scene.final(messages=said(MINE))
    assert (scene.cache.questions, scene.write_behind.stored) == ([], [])
    assert final.cache.verdict == pb.CACHE_VERDICT_BYPASS
    assert final.text == "Paris."


async def test_a_request_without_findings_is_looked_up_and_stored_as_without_a_guard():
    scene = guarded(personal="mask", secrets="mask", injection="refuse", answer_personal="mask")
    final = await scene.final()
    assert (len(scene.cache.questions), len(scene.write_behind.stored)) == (1, 1)
    assert (made(final), outcomes(final)["guard"], list(final.degraded)) == ([], "OK", [])


async def test_system_prompts_are_not_masked():
    scene = guarded(personal="mask")
    system = said("Our hotline is +49 30 1234567.", role=chat_pb2.ROLE_SYSTEM)
    await scene.final(messages=system + said("What is the hotline?"))
    assert scene.llms["small"].requests[0].messages[0].content == "Our hotline is +49 30 1234567."
    assert len(scene.cache.questions) == 1


async def test_arguments_of_calls_stay_json():
    scene = guarded(personal="mask")
    call = chat_pb2.ToolCall(id="1", name="pay", arguments='{"card": 4111111111111111, "to": "anna@example.com"}')
    calling = chat_pb2.Message(role=chat_pb2.ROLE_ASSISTANT, tool_calls=[call])
    result = chat_pb2.Message(role=chat_pb2.ROLE_TOOL, tool_call_id="1", content="paid with 4111111111111111")
    await scene.final(messages=[*said("Pay."), calling, result])
    asked = scene.llms["small"].requests[0].messages
    assert asked[1].tool_calls[0].arguments == '{"card": "[card 1]", "to": "[email 1]"}'
    assert asked[2].content == "paid with [card 1]"


async def test_a_secret_is_refused_by_its_rules_name_and_never_shown():
    scene = guarded(secrets="refuse")
    with pytest.raises(GuardRefused) as refused:
        await scene.final(messages=said(KEY))
    assert refused.value.metadata["rule"] == "github_token"
    assert "ghp_" not in f"{refused.value.message} {refused.value.metadata}"
    assert '"guard"' in refused.value.metadata["decisions"]
    assert (scene.cache.questions, scene.llms["small"].requests) == ([], [])


@pytest.mark.parametrize("where", ["user", "tool"])
async def test_an_injection_is_refused_before_any_model_is_asked(where: str):
    scene = guarded(injection="refuse")
    messages = said(ATTACK)
    if where == "tool":
        call = chat_pb2.ToolCall(id="1", name="read", arguments="{}")
        calling = chat_pb2.Message(role=chat_pb2.ROLE_ASSISTANT, tool_calls=[call])
        result = chat_pb2.Message(role=chat_pb2.ROLE_TOOL, tool_call_id="1", content=f"The page says: {ATTACK}")
        messages = [*said("Read the page."), calling, result]
    with pytest.raises(GuardRefused, match=r"looks like a prompt injection \(override\)"):
        await scene.final(messages=messages)
    assert scene.llms["small"].requests == []


async def test_an_injection_is_noted_where_that_is_all_that_is_wanted():
    final = await guarded(injection="note").final(messages=said(ATTACK))
    assert (final.text, made(final)) == ("Paris.", [("guard", "noted")])


async def test_messages_of_system_and_assistant_are_no_injection():
    messages = said(ATTACK, role=chat_pb2.ROLE_SYSTEM) + said(ATTACK, role=chat_pb2.ROLE_ASSISTANT) + said("Thanks!")
    assert (await guarded(injection="refuse").final(messages=messages)).text == "Paris."


@pytest.mark.parametrize("near", [False, True])
async def test_no_answer_of_the_cache_leaves_before_the_guard_is_done(near: bool):
    scene = guarded(ScriptedCache(EXACT), injection="refuse")
    scene.write_behind.keeps_pending = near
    scene.write_behind.stored = [cache_pb2.StoreRequest(answer=STORED)]
    assert (await scene.final(messages=said("What is the capital of France?"))).cache.verdict == pb.CACHE_VERDICT_EXACT
    with pytest.raises(GuardRefused):
        await scene.final(messages=said(ATTACK))


async def test_the_transcript_of_a_recording_is_guarded():
    scene = guarded(personal="mask")
    scene.media = senses(audio=ScriptedAudio("my address is anna@example.com"))
    await scene.final(messages=[], audio=pb.Audio(data=b"RIFF"))
    assert scene.llms["small"].requests[0].messages[-1].content == "my address is [email 1]"


async def test_a_long_text_is_looked_through_in_pieces_and_not_asked_of_the_cache():
    scene = guarded(personal="mask", injection="refuse")
    whole = pb.PromptPolicy(whole=True)
    filler = "The meeting began at nine and went on until noon. " * 200
    final = await scene.final(messages=said(f"{filler}{MINE} {filler}"), prompt=whole)
    (asked,) = scene.llms["small"].requests
    assert asked.messages[0].content == f"{filler}My card is [card 1], write to [email 1]. {filler}"
    assert scene.cache.questions == []
    with pytest.raises(GuardRefused):
        await scene.final(messages=said(f"{filler}{ATTACK} {filler}"), prompt=whole)
    assert outcomes(final)["guard"] == "OK"


@given(late=st.sampled_from(["open", "closed"]), sentences=st.integers(0, 400), slice_ms=st.integers(0, 20))
@settings(max_examples=examples(30), deadline=None)
def test_a_guard_that_is_late_does_what_its_setting_says(late: str, sentences: int, slice_ms: int):
    asked = "The meeting began at nine. " * sentences + "Who was there?"
    is_late = len(list(injection.pieces(asked))) - 1 > slice_ms

    async def ask() -> pb.Final | None:
        loop = asyncio.get_running_loop()

        def a_millisecond(piece: str) -> float:
            loop.clock.advance(0.001)  # type: ignore[attr-defined]
            return 0.0

        scene = guarded(injection="refuse", late=late)
        scene.slices = StageBudgets(guard=StageBudget(share=0.5, cap_ms=slice_ms + 0.5))
        with patch.object(injection, "probability", a_millisecond):
            try:
                return await scene.final(messages=said(asked), prompt=pb.PromptPolicy(whole=True))
            except GuardLate:
                assert scene.llms["small"].requests == []
                return None

    final = on_paused_loop(ask())
    assert (final is None) is (is_late and late == "closed")
    if final is not None:
        assert ("guard:late" in final.degraded) is (("guard", "late") in made(final)) is is_late
        assert final.text == "Paris."


@pytest.mark.parametrize("late", ["open", "closed"])
def test_a_guard_that_is_late_while_it_looks_at_once_does_what_its_setting_says(late: str):
    async def ask() -> pb.Final | None:
        loop, find = asyncio.get_running_loop(), find_private_data

        def slowly(*given: object) -> object:
            loop.clock.advance(0.03)  # type: ignore[attr-defined]
            return find(*given)  # type: ignore[arg-type]

        scene = guarded(ScriptedCache(EXACT), personal="mask", injection="refuse", late=late)
        scene.slices = StageBudgets(guard=StageBudget(share=0.5, cap_ms=20))
        with patch.object(screen, "find", slowly):
            try:
                return await scene.final(messages=said("The meeting began at nine. " * 200))
            except GuardLate:
                return None
            finally:
                assert scene.cache.questions == []  # it may hold private data
                assert len(scene.llms["small"].requests) == (late == "open")

    final = on_paused_loop(ask())
    assert (final is None) is (late == "closed")
    if final is not None:
        assert (outcomes(final)["guard"], final.text) == ("OVERRUN", "Paris.")
        assert "guard:late" in final.degraded
        assert ("guard", "late") in made(final)


async def test_many_short_messages_are_checked_in_steps_between_which_others_run():
    in_turn, most = 0, 0

    def counted(*given: object) -> object:
        nonlocal in_turn
        in_turn += 1
        return find_private_data(*given)  # type: ignore[arg-type]

    async def others() -> None:
        nonlocal in_turn, most
        while True:
            most, in_turn = max(most, in_turn), 0
            await asyncio.sleep(0)

    scene, beside = guarded(personal="mask"), asyncio.create_task(others())
    with patch.object(screen, "find", counted):
        final = await scene.final(messages=said(*["Hi."] * 3_000, MINE))
    beside.cancel()
    assert ("guard", "masked_input") in made(final)
    assert 0 < most <= screen.AT_ONCE // screen.EACH


@pytest.mark.parametrize("late", [False, True])
async def test_a_tool_reads_the_question_as_a_model_does_and_not_before_the_guard_is_done(late: bool):
    source, scene = searching(personal="mask", injection="refuse")
    asked = said(MINE + (" Fine." * 1_500 if late else ""))
    await scene.final(messages=asked, mesh_tools=[pb.MeshTool(name="search")])
    (call,) = source.calls
    assert "[card 1]" in call.arguments
    assert "4111" not in call.arguments


async def test_nothing_is_called_for_a_question_that_is_refused():
    source, scene = searching(injection="refuse")
    with pytest.raises(GuardRefused):
        await scene.final(messages=said(ATTACK), mesh_tools=[pb.MeshTool(name="search")])
    assert not source.calls
