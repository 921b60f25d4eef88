"""Pictures and recordings that belong to a question."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission.control import _tokens
from services.gateway.admission.question import Question, prompt_tokens
from services.gateway.answer.backends import Fallbacks
from services.gateway.policies.baseline import LatencyBaseline
from services.gateway.settings.generation import BreakerSettings
from services.gateway.upstream.media import Media
from services.gateway.upstream.replica import make_breaker
from services.runtime.errors import Exhausted, InvalidInput, Unavailable
from tests.clock import loop_clock
from tests.unit.gateway.answer.scene import MISS, Scene, outcomes
from tests.unit.gateway.prompt.conversations import said
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, finish, text
from tests.unit.gateway.scripted_media import ScriptedAudio, ScriptedVision, looking, senses

pytestmark = pytest.mark.paused

PICTURE = pb.Image(data=b"a picture")
RECORDING = pb.Audio(data=b"a recording")
CIRCLE = [("red circle", 0.974)]
SHOWN = "The attached image shows: red circle (97%)."


def sent(scene: Scene) -> str:
    """The question as the model read it."""
    return next(llm for llm in scene.llms.values() if llm.requests).requests[0].messages[-1].content


async def test_labels_stand_before_the_question():
    scene = Scene(senses=senses(ScriptedVision(CIRCLE)))
    events = await scene.events(images=[PICTURE])
    assert [event.WhichOneof("kind") for event in events] == [
        *("accepted", "stage", "stage", "sights", "delta", "delta", "stage", "final")
    ]
    assert sent(scene) == f"Context:\n- {SHOWN}\n\nQuestion: What is the capital of France?"
    final = events[-1].final
    assert final.sights.pictures[0].labels[0].name == "red circle"
    assert outcomes(final) == {"vision": "OK", "router": "OK", "llm": "OK"}
    assert not final.degraded


async def test_each_picture_has_its_line_and_all_its_labels():
    scene = Scene(senses=senses(ScriptedVision([("cat", 0.8), ("dog", 0.1)], CIRCLE)))
    await scene.messages(images=[PICTURE, PICTURE])
    assert "- Attached image 1 most likely shows: cat (80%), dog (10%).\n- Attached image 2 shows: red" in sent(scene)


async def test_the_operator_may_choose_the_notation_of_labels():
    media = senses(ScriptedVision(CIRCLE))
    assert media.vision
    scene = Scene(senses=replace(media, vision=replace(media.vision, note="image: {labels}")))
    await scene.messages(images=[PICTURE])
    assert sent(scene) == "Context:\n- image: red circle (0.97)\n\nQuestion: What is the capital of France?"


async def test_a_recording_without_a_written_question_is_the_question():
    scene = Scene(senses=senses(audio=ScriptedAudio("What is latency?")))
    events = await scene.events(messages=[], audio=RECORDING)
    assert events[1].stage.name == "audio"
    assert events[2].transcript == pb.Transcript(text="What is latency?", confirmed_words=3, final=True)
    assert sent(scene) == "What is latency?"
    assert events[-1].final.transcript == "What is latency?"


async def test_a_recording_beside_a_written_question_is_context():
    scene = Scene(senses=senses(audio=ScriptedAudio("Call me back.")))
    await scene.messages(messages=[said("user", "What does she want?")], audio=RECORDING)
    assert sent(scene) == "Context:\n- audio: Call me back.\n\nQuestion: What does she want?"


async def test_a_spoken_question_about_a_picture_has_both():
    scene = Scene(senses=senses(ScriptedVision(CIRCLE), ScriptedAudio("What do you see?")))
    final = await scene.final(messages=[], audio=RECORDING, images=[PICTURE])
    assert sent(scene) == f"Context:\n- {SHOWN}\n\nQuestion: What do you see?"
    assert outcomes(final) == {"audio": "OK", "vision": "OK", "router": "OK", "llm": "OK"}


async def test_the_cache_is_asked_with_the_words_and_keyed_by_what_the_pictures_show():
    questions = []
    for label in ("red circle", "blue circle"):
        scene = Scene(ScriptedCache(MISS), senses=senses(ScriptedVision([(label, 0.97)])))
        await scene.messages(images=[PICTURE])
        (stored,) = scene.write_behind.stored
        questions.append(stored.question)
    red, blue = questions
    assert red.messages[-1].content == "What is the capital of France?"
    assert len(red.attachments) == 1
    assert red.attachments != blue.attachments


@pytest.mark.parametrize(("pictures", "is_well"), [(1, False), (20, True)])
async def test_more_pictures_than_there_is_time_for_are_no_failure_of_the_service(pictures: int, is_well: bool):
    breaker = make_breaker(BreakerSettings(), "vision", LatencyBaseline(0.05, loop_clock), loop_clock)
    scene = Scene(senses=Media(vision=looking(ScriptedVision(CIRCLE, pause_s=5), breaker)))
    for _ in range(5):
        assert "vision:budget" in (await scene.final(images=[PICTURE] * pictures)).degraded
    assert breaker.would_admit("another tenant") is is_well


async def test_a_late_look_degrades_the_answer_and_comes_as_a_patch():
    thought = llm_pb2.GenerateResponse(reasoning="Hm.")  # when the labels are there: a patch follows a text
    llm = ScriptedLlm(0.2, thought, 0.1, text("A"), 0.1, text("b"), finish())
    scene = Scene(ScriptedCache(MISS), senses=senses(ScriptedVision(CIRCLE, pause_s=0.35)), small=llm)
    events = await scene.events(images=[PICTURE])
    kinds = [event.WhichOneof("kind") for event in events]
    assert kinds.index("patch") > kinds.index("delta")
    assert next(event.patch for event in events if event.HasField("patch")) == pb.Patch(stage="vision", text=SHOWN)
    final = events[-1].final
    assert list(final.degraded) == ["vision:budget"]
    assert outcomes(final)["vision"] == "OVERRUN"
    assert final.sights.pictures[0].labels[0].name == "red circle"
    assert ("budget", "skipped", "vision") in [(d.policy, d.action, d.subject) for d in final.decisions]


async def test_an_answer_that_lacks_a_picture_is_neither_looked_up_nor_stored():
    scene = Scene(ScriptedCache(MISS), senses=senses(ScriptedVision(error=Unavailable("gone"))))
    final = await scene.final(images=[PICTURE])
    assert list(final.degraded) == ["vision:unavailable"]
    assert final.cache.verdict == pb.CACHE_VERDICT_BYPASS
    assert scene.cache.questions == []
    assert scene.write_behind.stored == []


async def test_a_broken_service_is_left_alone_after_a_while():
    vision = ScriptedVision(error=Unavailable("gone"))
    scene = Scene(senses=senses(vision))
    for _ in range(6):
        final = await scene.final(images=[PICTURE])
    assert len(vision.requests) == 5
    assert outcomes(final)["vision"] == "SKIPPED"
    assert list(final.degraded) == ["vision:unavailable"]


async def test_a_refused_picture_does_not_wait_for_the_recording():
    vision = ScriptedVision(error=InvalidInput("images[0]", "a PNG, JPEG or WebP", "text"))
    scene = Scene(senses=senses(vision, ScriptedAudio("never", pause_s=0.4)))
    with pytest.raises(InvalidInput, match=r"images\[0\]"):
        await scene.messages(messages=[], audio=RECORDING, images=[PICTURE])
    assert asyncio.all_tasks() == {asyncio.current_task()}


LONG = pb.Audio(data=b"RIFF" + bytes(5 * 32_000 - 4))  # five seconds by its bytes; the transcript is of two


@pytest.mark.parametrize(
    ("audio", "tokens"),
    [
        (ScriptedAudio("Call me back."), 20),
        (ScriptedAudio(""), 20),
        (ScriptedAudio("late", pause_s=5), 50),
        (ScriptedAudio(error=InvalidInput("audio", "a recording", "noise")), 0),
        (ScriptedAudio(error=Exhausted("busy", retry_delay_s=1)), 0),
        (ScriptedAudio(error=Unavailable("away")), 0),
    ],
)
async def test_the_transcription_of_a_recording_is_charged_by_its_length(audio: ScriptedAudio, tokens: int):
    scene = Scene(senses=senses(audio=audio))
    with suppress(InvalidInput):
        await scene.messages(messages=[said("user", "What does she want?")], audio=LONG)
    plain = Scene()
    await plain.messages(messages=[said("user", "What does she want?")])
    answered = plain.billed[0] if any(llm.requests for llm in scene.llms.values()) else 0
    assert scene.billed == [tokens + answered]


async def test_a_client_that_cancels_a_transcription_is_charged_by_the_bytes_of_its_recording():
    scene = Scene(senses=senses(audio=ScriptedAudio("late", pause_s=0.5)))
    messages = sent_by(scene.answer(messages=[], audio=LONG).give)
    reading = asyncio.create_task(anext(messages))
    await asyncio.sleep(0.1)
    reading.cancel()
    await asyncio.wait({reading})
    await messages.aclose()
    assert scene.billed == [50]


def test_the_reservation_for_a_recording_is_estimated_from_its_bytes():
    request = pb.GenerateRequest(messages=[said("user", "What does she want?")], audio=LONG)
    unhandled = Question(request, "context", prompt_tokens(request.messages))
    media = senses(audio=ScriptedAudio("Call me back."))
    assert _tokens(replace(unhandled, audio=media.audio)) == _tokens(unhandled) + 50


async def test_silence_is_no_question():
    scene = Scene(senses=senses(audio=ScriptedAudio("")))
    with pytest.raises(InvalidInput, match="audio: a recording with speech, got silence"):
        await scene.messages(messages=[], audio=RECORDING)


MASKS = pb.GuardPolicy(answer_personal=pb.GUARD_ACTION_MASK)
TEMPLATE = Fallbacks(("template",), "Please ask again.")


@pytest.mark.parametrize(
    ("fallbacks", "guard", "degraded"),
    [
        pytest.param(Fallbacks((), ""), None, ["audio:budget"], id="no text"),
        pytest.param(TEMPLATE, None, ["audio:budget", "llm:template"], id="the template"),
        pytest.param(TEMPLATE, MASKS, ["audio:budget", "llm:template"], id="the template, guarded"),
    ],
)
async def test_a_question_that_is_not_transcribed_in_time_ends_at_its_budget_with_the_template_or_no_text(
    fallbacks: Fallbacks, guard: pb.GuardPolicy | None, degraded: list[str]
):
    scene = Scene(fallbacks=fallbacks, senses=senses(audio=ScriptedAudio("late", pause_s=5)))
    final = await scene.final(messages=[], audio=RECORDING, guard=guard)
    assert (final.text, final.finish_reason) == (fallbacks.template, chat_pb2.FINISH_REASON_BUDGET)
    assert (list(final.degraded), outcomes(final)["audio"]) == (degraded, "OVERRUN")


@pytest.mark.parametrize("error", [Unavailable("gone"), Exhausted("busy", retry_delay_s=2)])
async def test_a_spoken_question_without_an_audio_service_is_an_error(error: Exception):
    scene = Scene(senses=senses(audio=ScriptedAudio(error=error)))
    with pytest.raises(type(error), match=str(error)):
        await scene.messages(messages=[], audio=RECORDING)


async def test_spoken_context_without_an_audio_service_only_degrades_the_answer():
    scene = Scene(senses=senses(audio=ScriptedAudio(error=Unavailable("gone"))))
    final = await scene.final(messages=[said("user", "What does she want?")], audio=RECORDING)
    assert (final.text, list(final.degraded)) == ("Paris.", ["audio:unavailable"])
