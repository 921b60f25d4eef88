"""Original bodies that a guard looks through: fields that only a provider reads."""

from __future__ import annotations

import asyncio
import json

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span

from hedgerow.chat.v1 import chat_pb2
from services.gateway.answer import model_call, original_body
from services.gateway.answer.stages import guard
from services.gateway.errors import GuardRefused
from services.runtime import telemetry
from tests.unit.gateway.answer.stages.guarded import ATTACK, KEY, MINE, guarded, made, original_for_model, said
from tests.unit.gateway.scripted import large_asides

pytestmark = pytest.mark.paused


async def test_private_data_in_untranslated_fields_is_masked_for_the_provider():
    scene = guarded(personal="mask")
    asked = [{"role": "user", "content": "Hi."}]
    own = original_for_model({"messages": asked, "user": MINE, "seed": 7}, user=MINE)
    final = await scene.final(messages=said("Hi."), original=own)
    (sent,) = scene.llms["small"].requests
    hidden = "My card is [card 1], write to [email 1]."
    assert json.loads(sent.original.body) == {"messages": asked, "user": hidden, "seed": 7}
    assert json.loads(sent.original.untranslated["user"]) == hidden
    assert made(final) == [("guard", "masked_input"), ("guard", "bypassed")]


@pytest.mark.parametrize(("fields", "large"), [(0, False), (100, False), (1_000, True)])
async def test_many_untranslated_fields_are_read_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, fields: int, large: bool
):
    asides = large_asides(monkeypatch, guard)
    unknown = {f"unknown_{number}": 1 for number in range(fields)}
    await guarded(personal="mask").final(
        messages=said("Hi."), original=original_for_model({"messages": [], **unknown}, **unknown)
    )
    assert asides == [large]


async def test_a_client_that_leaves_while_they_are_read_leaves_no_span_open(monkeypatch: pytest.MonkeyPatch):
    async def aside(*_: object) -> object:
        return await asyncio.Event().wait()

    tracer, spans = TracerProvider().get_tracer("test"), dict[str, Span]()
    monkeypatch.setattr(telemetry, "start_span", lambda name, **_: spans.setdefault(name, tracer.start_span(name)))
    monkeypatch.setattr(guard, "aside", aside)
    answering = asyncio.create_task(
        guarded(personal="mask").final(messages=said("Hi."), original=original_for_model({}))
    )
    await asyncio.sleep(0.1)
    answering.cancel()
    await asyncio.wait({answering})
    assert not [name for name, span in spans.items() if span.is_recording()]


async def test_a_large_body_is_changed_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch):
    asides = large_asides(monkeypatch, original_body)
    own = original_for_model({"messages": [], "user": "A" * 1_100_000}, user=MINE)
    for other in (guard, model_call):  # time is paused: it would leap to the end of the budget beside a thread
        large_asides(monkeypatch, other)
    await guarded(personal="mask").final(messages=said("Hi."), original=own)
    assert asides == [True]


async def test_a_conversation_with_private_data_in_such_a_field_is_the_gateways():
    scene = guarded(personal="mask")
    thought = {"role": "assistant", "content": "Hm.", "reasoning_content": MINE}
    own = original_for_model({"messages": [thought], "seed": 7}, messages__reasoning_content=MINE)
    await scene.final(messages=said("Hi."), original=own)
    (sent,) = scene.llms["small"].requests
    assert json.loads(sent.original.body) == {"seed": 7}
    assert "anna@example.com" not in str(sent)


@pytest.mark.parametrize(
    ("turns", "stays"),
    [
        pytest.param([["Hi."], ["Hi. ", MINE]], False, id="a masked text of several parts"),
        pytest.param([["Hi. ", None, MINE]], False, id="a masked text around a part of another type"),
        pytest.param([["Hi."], [f"Hi. {MINE}"]], True, id="a text that is in a masked one"),
    ],
)
async def test_items_of_responses_stay_where_the_masked_texts_are_whole(turns: list[list[str | None]], stays: bool):
    contents = [
        [{"type": "input_text" if text else "input_note", "text": text or "?"} for text in turn] for turn in turns
    ]
    items = [{"role": "user", "content": content} for content in contents]
    own = chat_pb2.Original(api=chat_pb2.API_RESPONSES, body=json.dumps({"input": items}).encode())
    scene = guarded(personal="mask")
    await scene.final(messages=said(*("".join(filter(None, turn)) for turn in turns)), original=own)
    assert ("input" in json.loads(scene.llms["small"].requests[0].original.body)) == stays


@pytest.mark.parametrize(
    ("given", "guard"), [(KEY, {"secrets": "refuse"}), ([{"text": ATTACK}], {"injection": "refuse"})]
)
async def test_such_a_field_is_refused_for_what_a_message_is_refused_for(given: object, guard: dict[str, str]):
    scene = guarded(**guard)
    with pytest.raises(GuardRefused):
        await scene.final(messages=said("Hi."), original=original_for_model({"documents": given}, documents=given))
    assert scene.llms["small"].requests == []


async def test_signatures_and_definitions_of_tools_are_not_looked_through():
    scene = guarded(personal="mask")
    own = original_for_model({"messages": []}, messages__signature=MINE, tools__examples=[MINE])
    final = await scene.final(messages=said("Hi."), original=own)
    assert made(final) == []
    assert scene.llms["small"].requests[0].original == own
