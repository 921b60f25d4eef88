"""Sentence ends, sent with the text to a client that asks for them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.event_writer import EventWriter
from services.gateway.answer.text_writer import TextWriter
from services.gateway.settings.guard import GuardSettings
from tests.clock import on_paused_loop
from tests.examples import examples
from tests.unit.gateway.answer.scene import ACME, MISS, Scene
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, finish, text

SENTENCES = ("Dr. Owl slept.", " “Who is it?” asked the fox!", " 東京です。", " It is 3.14, is it not?", " No")
STORY = "".join(SENTENCES)
ENDS = [0, *(len("".join(SENTENCES[: count + 1])) for count in range(len(SENTENCES) - 1))]


def deltas(*pieces: str, guard: GuardSettings | None = None, **fields: object) -> list[pb.TextDelta]:
    async def events() -> list[pb.Event]:
        scene = Scene(ScriptedCache(MISS), small=ScriptedLlm(*map(text, pieces), finish()))
        scene.tenant = replace(ACME, guard=guard or ACME.guard)
        return await scene.events(**fields)

    return [event.delta for event in on_paused_loop(events()) if event.HasField("delta")]


def cut(sizes: list[int]) -> list[str]:
    pieces, rest = [], STORY
    while rest:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(rest[:size])
        rest = rest[size:]
    return pieces


def check(came: list[pb.TextDelta]) -> None:
    """Each reported end is one, in text that is there already, and none is left out: a client reads all of the
    story."""
    written, ends = "", [0]
    for delta in came:
        written += delta.text
        ends.append(delta.sentence_end)
        assert ends[-2] <= ends[-1] <= len(written)
    assert written == STORY
    assert set(ends) <= set(ENDS)
    assert ends[-1] == ENDS[-1]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40))
@settings(max_examples=examples(20), deadline=None)
def test_however_a_text_comes_its_sentence_ends_are_sent_once_they_are_whole(sizes: list[int]) -> None:
    came = deltas(*cut(sizes), sentence_ends=True)
    check(came)
    if max(sizes) == 1:  # none waits for more than the first letter of the next
        assert {delta.sentence_end for delta in came} == set(ENDS)


def test_sentence_ends_of_a_guarded_text_are_sent_once_they_are_whole() -> None:
    check(deltas(*cut([3]), guard=GuardSettings(personal="mask"), sentence_ends=True))


def test_a_request_without_sentence_ends_gets_none() -> None:
    assert {delta.sentence_end for delta in deltas(*cut([3]))} == {0}


async def test_a_text_that_replaces_another_is_counted_from_its_own_beginning() -> None:
    writer = EventWriter()
    voice = TextWriter(Scene(ScriptedCache(MISS)).answer()._ledger, writer, None, sentence_ends=True)
    await voice.say("A long first answer. And")
    voice.replace("cascade")
    for piece in ("No. It", " is not. So"):
        await voice.say(piece)
    assert [event.delta.sentence_end for event in writer.events if event.HasField("delta")] == [
        20,
        len("No. It is not."),
    ]
