"""A long text that comes in one piece is read in parts, between which the event loop runs, and nothing else changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer import stream_filter, text_writer
from services.gateway.answer.event_writer import EventWriter
from services.gateway.answer.text_writer import TextWriter
from services.gateway.guard.checks import guard_checks
from services.gateway.guard.screen import AT_ONCE
from services.gateway.settings.guard import GuardSettings
from tests.clock import on_paused_loop
from tests.examples import examples
from tests.unit.gateway.answer.scene import EXACT, MISS, Scene
from tests.unit.gateway.answer.stages.guarded import guarded
from tests.unit.gateway.scripted import ScriptedCache, finish

WORDS = st.sampled_from(
    ["a", "Well. ", "Dr. ", "? ", "\n", "元気？", "」", "ana@example.com ", "password: hunter2x ", "titan ", "é", '" ']
)
GUARDS = {
    "none": GuardSettings(),
    "masks": GuardSettings(answer_personal="mask", answer_secrets="mask", denied_phrases=("titan",)),
    "ends": GuardSettings(answer_personal="end"),
}


async def said(texts: Iterable[str], guard: GuardSettings, at_once: int) -> tuple[str, list[pb.Event], object]:
    """The texts that a client has, and those in the ledger."""
    ledger, writer = Scene(ScriptedCache(MISS)).answer()._ledger, EventWriter()
    speaking = TextWriter(ledger, writer, guard_checks(guard, pb.GenerateRequest()), sentence_ends=True)
    with mock.patch.object(text_writer, "AT_ONCE", at_once), mock.patch.object(stream_filter, "AT_ONCE", at_once):
        for text in texts:
            spelled = [chat_pb2.TokenLogprob(token=text)]
            await speaking.say(text, 1, spelled)
        reason = await speaking.finish(chat_pb2.FINISH_REASON_STOP)
    written = ledger.written
    ends = [event.delta.sentence_end for event in writer.events if event.HasField("delta")]
    account = written.tokens, ends[-1:], reason, {each.action for each in ledger.decisions}
    return written.whole_text, writer.events, account


@pytest.mark.parametrize("guard", GUARDS)
@given(st.lists(st.lists(WORDS, min_size=1, max_size=40).map("".join), min_size=1, max_size=3), st.integers(1, 40))
@settings(max_examples=examples(60), deadline=None)
def test_events_and_reports_do_not_depend_on_how_a_text_is_divided(guard: str, texts: list[str], at_once: int) -> None:
    whole, events, account = on_paused_loop(said(texts, GUARDS[guard], 1_000_000))
    in_parts, more, same = on_paused_loop(said(texts, GUARDS[guard], at_once))
    assert (in_parts, same) == (whole, account)
    assert {logprob.token for event in more for logprob in event.delta.logprobs} <= {*texts}
    if guard == "none":
        assert more == events


async def turns(work: Callable[[], Awaitable[None]]) -> int:
    """How often the event loop ran other work while this was done."""
    count, over = 0, False

    async def other() -> None:
        nonlocal count
        while not over:
            count += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    await work()
    over = True
    await beside
    return count


LONG = {"sentences": ". " * 32_768, "no sentence": "a." * 32_768, "no blank": "a" * 65_536}
LEAST = 65_536 // AT_ONCE


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("text", LONG)
async def test_the_event_loop_runs_between_the_parts_of_an_answer(guard: str, text: str) -> None:
    ledger = Scene(ScriptedCache(MISS)).answer()._ledger
    speaking = TextWriter(ledger, EventWriter(), guard_checks(GUARDS[guard], pb.GenerateRequest()), sentence_ends=True)

    async def say() -> None:
        await speaking.say(LONG[text])
        await speaking.finish(chat_pb2.FINISH_REASON_STOP)

    readers = 1 if guard == "none" else 2  # one finds sentences, and with a guard another filters before
    assert await turns(say) > (readers - 0.5) * LEAST
    assert ledger.written.whole_text == LONG[text]


async def test_a_long_stored_answer_gives_way_to_other_tasks() -> None:
    stored = cache_pb2.LookupResponse()
    stored.CopyFrom(EXACT)
    stored.answer.text = LONG["no sentence"]
    scene, found = Scene(ScriptedCache(stored)), list[pb.Final]()

    async def ask() -> None:
        found.append(await scene.final())

    assert await turns(ask) >= LEAST
    assert found[0].text == LONG["no sentence"]


@pytest.mark.parametrize(("ends", "kept"), [("", True), (" Write to ana@example.com.", False)])
@pytest.mark.parametrize("text", LONG)
async def test_guarding_a_long_answer_before_it_is_stored_gives_way_to_other_tasks(
    text: str, ends: str, kept: bool
) -> None:
    scene = guarded(None, finish(LONG[text] + ends), personal="mask")
    final, allowed = await scene.final(), list[bool]()
    look = scene.write_behind.checks[0]
    assert final.text == LONG[text] + ends
    assert look is not None

    async def take() -> None:
        allowed.append(await look())

    assert await turns(take) >= LEAST
    assert allowed == [kept]
