"""A cascade whose first answer is streamed at once, before it has passed."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.runtime.errors import Exhausted, ServiceError, Unavailable
from tests.clock import on_paused_loop
from tests.examples import examples
from tests.unit.gateway.answer.scene import MISS
from tests.unit.gateway.answer.stages.cascades import LENGTH, STOP, cascading, made, said_of
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, finish, text

pytestmark = pytest.mark.paused

AT_ONCE = pb.Cascade(at_once=True)


async def test_at_once_a_fast_answer_is_streamed_before_it_has_passed():
    scene = cascading(0.05, text("Pa"), 0.05, finish("ris."), cache=ScriptedCache(MISS))
    events = await scene.events(cascade=AT_ONCE)
    assert said_of(events) == ["", "Pa", "Paris."]
    final = events[-1].final
    assert (final.text, final.model, final.ttft_ms) == ("Paris.", "quick", pytest.approx(50, abs=5))
    assert made(final) == [("cascade", "passed")]
    assert not final.degraded
    assert scene.billed == [10]
    assert scene.write_behind.stored[0].answer.text == "Paris."


async def test_at_once_the_better_answer_replaces_the_one_that_did_not_pass_and_goes_on():
    better = ScriptedLlm(0.1, text("It is "), 0.1, finish("Paris."))
    scene = cascading(text("I don't "), 0.05, finish("know."), better=better, cache=ScriptedCache(MISS))
    events = await scene.events(cascade=AT_ONCE)
    assert said_of(events) == ["", "I don't ", "I don't know.", "It is ", "It is Paris."]
    assert [event.patch for event in events if event.HasField("patch")] == [
        pb.Patch(stage="llm", text="It is ", replaces=True)
    ]
    final = events[-1].final
    assert (final.text, final.model, list(final.patches)) == ("It is Paris.", "better", [])
    assert made(final) == [("cascade", "escalated")]
    assert scene.billed == [20]
    assert final.cost_usd == pytest.approx(2 * (7 + 2 * 3) / 1e6)
    assert scene.write_behind.stored[0].answer.text == "It is Paris."


@pytest.mark.parametrize("better", [(Unavailable("gone"),), (Exhausted("full"),), (None,), (finish(),)])
async def test_at_once_what_was_said_stays_where_there_is_nothing_better(better: tuple[object, ...]):
    scene = cascading(finish("I don't know."), better=ScriptedLlm(*better), cache=ScriptedCache(MISS))
    events = await scene.events(cascade=AT_ONCE)
    assert said_of(events) == ["", "I don't know."]
    final = events[-1].final
    assert (final.text, final.model, final.finish_reason) == ("I don't know.", "quick", STOP)
    assert made(final)[-1] == ("cascade", "kept")
    assert "cascade:kept" in final.degraded
    assert final.usage.prompt_tokens == 7
    assert not scene.write_behind.stored


async def test_at_once_what_the_guard_holds_back_of_an_answer_that_stays_leaves_after_it():
    scene = cascading(text("I don't know. "), finish("It may be Lyon"), better=ScriptedLlm(finish()))
    guard = pb.GuardPolicy(answer_personal=pb.GUARD_ACTION_MASK)
    events = await scene.events(cascade=AT_ONCE, guard=guard)
    assert events[-1].final.text == said_of(events)[-1] == "I don't know. It may be Lyon"
    assert not [event for event in events if event.HasField("patch")]


async def test_at_once_an_answer_that_the_guard_ends_has_passed_no_check():
    scene = cascading(text("Write to jo@example.com. "), 0.05, finish("Bye."))
    guard = pb.GuardPolicy(answer_personal=pb.GUARD_ACTION_REFUSE)
    final = (await scene.events(cascade=AT_ONCE, guard=guard))[-1].final
    assert final.finish_reason == chat_pb2.FINISH_REASON_CONTENT_FILTER
    assert "cascade" not in [policy for policy, _ in made(final)]


@pytest.mark.parametrize("better", [Unavailable("better: gone"), finish()], ids=["gone", "without text"])
async def test_at_once_an_answer_is_interrupted_where_both_models_break(better: object):
    scene = cascading(text("Lyo"), Unavailable("quick: broke"), better=ScriptedLlm(better))
    final = (await scene.events(cascade=AT_ONCE))[-1].final
    assert (final.text, final.model) == ("Lyo", "quick")
    assert final.finish_reason == chat_pb2.FINISH_REASON_INTERRUPTED


@pytest.mark.parametrize(
    ("quick", "shown"),
    [
        ((text("Lyo"), Unavailable("quick: broke")), ["", "Lyo", "It is ", "It is Paris."]),
        ((Unavailable("quick: gone"),), ["", "It is ", "It is Paris."]),
    ],
    ids=["in mid-answer", "before its first text"],
)
async def test_at_once_a_fast_model_that_breaks_is_replaced_by_a_patch_of_what_it_said(quick, shown: list[str]):
    events = await cascading(*quick).events(cascade=AT_ONCE)
    assert said_of(events) == shown
    assert sum(event.HasField("patch") for event in events) == (len(shown) == 4)


_WORDS = st.lists(st.sampled_from(["Lyon ", "I don't know. ", "Paris. ", ""]), max_size=4)
_ENDS = st.sampled_from([finish(), finish("", LENGTH), Unavailable("broke"), None])


@given(_WORDS, _ENDS, _WORDS, _ENDS, st.booleans(), st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_a_cascades_stream_takes_nothing_back_but_by_a_patch(fast, fast_end, better, better_end, at_once, guarded):
    """And what a client shows in the end is the answer."""

    async def asked() -> None:
        scene = cascading(*map(text, fast), fast_end, better=ScriptedLlm(*map(text, better), better_end))
        guard = pb.GuardPolicy(answer_personal=pb.GUARD_ACTION_MASK) if guarded else None
        events = []
        with suppress(ServiceError):
            async for message in sent_by(scene.answer(cascade=pb.Cascade(at_once=at_once), guard=guard).give):
                events += message.events
        shown = said_of(events)
        patches = sum(event.HasField("patch") for event in events)
        taken_back = sum(not after.startswith(before) for before, after in itertools.pairwise(shown))
        assert taken_back <= patches <= at_once
        if events and events[-1].HasField("final"):
            assert events[-1].final.text == shown[-1]

    on_paused_loop(asked())
