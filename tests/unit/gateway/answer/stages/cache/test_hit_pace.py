"""A hit that is given at a pace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.text_writer import paced
from services.gateway.settings.guard import GuardSettings
from tests.clock import loop_clock
from tests.unit.gateway.answer.scene import Scene
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import ScriptedCache

pytestmark = pytest.mark.paused

STORED = cache_pb2.Answer(text="Paris, of course. " * 4, model="large", finish_reason=chat_pb2.FINISH_REASON_STOP)
HIT = cache_pb2.LookupResponse(verdict=cache_pb2.VERDICT_EXACT, answer=STORED, key="k", ttl_ms=9_000)


def at(chars_per_s: float | None) -> dict[str, pb.CachePolicy]:
    return {"cache": pb.CachePolicy(hit_chars_per_s=chars_per_s)}


async def timed(scene: Scene, **fields: Any) -> list[tuple[float, str]]:
    """When each text came, and the text."""
    began, came = loop_clock(), []
    async for message in sent_by(scene.answer(**fields).give):
        text = "".join(event.delta.text for event in message.events)
        came += [(loop_clock() - began, text)] if text else []
    return came


@pytest.mark.parametrize(("asked", "paced"), [(None, False), (0, False), (100, True)])
async def test_a_hit_comes_at_the_pace_of_the_request_and_without_one_at_once(asked: float | None, paced: bool):
    came = await timed(Scene(ScriptedCache(HIT)), **at(asked))
    assert "".join(text for _, text in came) == STORED.text
    assert [len(text) for _, text in came] == ([5] * 14 + [2] if paced else [len(STORED.text)])
    assert came[-1][0] == (pytest.approx(0.7) if paced else 0)


async def test_the_copy_in_the_gateway_comes_at_the_same_pace():
    scene = Scene(ScriptedCache(HIT))
    first = await timed(scene, **at(100))
    assert await timed(scene, **at(100)) == first
    assert len(scene.cache.questions) == 1


async def test_a_pace_stays_within_the_budget():
    scene = Scene(ScriptedCache(HIT))
    came = await timed(scene, **at(1))
    assert came[-1][0] < scene.budget_ms / 1000
    assert "".join(text for _, text in came) == STORED.text
    final = await scene.final(**at(1))
    assert (final.finish_reason, list(final.degraded)) == (chat_pb2.FINISH_REASON_STOP, [])


async def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind():
    scene = Scene(ScriptedCache(HIT))
    messages = sent_by(scene.answer(**at(10)).give)
    await anext(messages)
    await messages.aclose()
    assert scene.billed == [0]  # the runner has settled, and no task is left


async def test_a_denied_phrase_ends_a_paced_answer():
    scene = Scene(ScriptedCache(HIT))
    scene.tenant = replace(scene.tenant, guard=GuardSettings(denied_phrases=("course",), answer_denied="end"))
    began, final = loop_clock(), await scene.final(**at(100))
    assert loop_clock() - began < 0.3  # no wait for the rest, which would take 0.7 s
    assert final.finish_reason == chat_pb2.FINISH_REASON_CONTENT_FILTER
    assert "course" not in final.text


@given(st.text(max_size=300), st.floats(0.01, 1e6), st.floats(0, 100))
def test_the_text_is_whole_in_order_and_done_in_its_time(text, per_s, within_s):
    pieces = list(paced(text, per_s, within_s))
    assert "".join(piece for _, piece in pieces) == text
    due = [due_s for due_s, _ in pieces]
    assert due == sorted(due)
    assert all(0 <= due_s <= within_s for due_s in due)


@pytest.mark.parametrize(
    ("text", "per_s", "within_s", "pieces"),
    [
        ("abcdef", 40, 10, [(0, "ab"), (0.05, "cd"), (0.1, "ef")]),
        ("abc", 2, 10, [(0, "a"), (0.5, "b"), (1, "c")]),
        ("abcd", 1, 0.1, [(0, "ab"), (pytest.approx(0.05), "cd")]),
        ("abcd", 1, 0, [(0, "abcd")]),
    ],
    ids=["from the first moment on", "one character at a time", "faster where time is short", "no time"],
)
def test_a_stored_answer_is_divided_by_its_pace(
    text: str, per_s: float, within_s: float, pieces: list[tuple[float, str]]
):
    assert list(paced(text, per_s, within_s)) == pieces
