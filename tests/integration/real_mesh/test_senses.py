"""Pictures and voices, through the whole mesh on its real engines."""

from __future__ import annotations

import asyncio
import wave
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import hedgerow
from tests.integration.collector import Collector
from tests.integration.real_mesh.test_mesh import stored
from tests.models import SAMPLES

pytestmark = pytest.mark.asyncio(loop_scope="session")
CIRCLE, STAR = SAMPLES / "red-circle.png", SAMPLES / "blue-star.jpg"
CAPITAL, FOX = SAMPLES / "capital-of-france.wav", SAMPLES / "story-about-a-fox.wav"
WHAT = "What is in the image?"
PARIS = "The capital of France is Paris."
BLOCK_S = 0.04


def ran(answer: hedgerow.Answer) -> list[str]:
    return sorted(stage.name for stage in answer.stages if stage.outcome == "ok")


async def test_a_question_about_a_picture_is_answered(client: hedgerow.AsyncClient):
    answer = await client.ask(WHAT, images=[CIRCLE], cache="bypass")
    assert answer.text == "The image shows a red circle."
    assert answer.sights[0][0].name == "red circle"
    assert ran(answer) == ["llm", "router", "vision"]
    assert not answer.degraded


async def test_a_spoken_question_is_answered(client: hedgerow.AsyncClient):
    answer = await client.ask(audio=CAPITAL, cache="bypass")
    assert (answer.transcript, answer.text) == ("What is the capital of France?", PARIS)
    assert ran(answer) == ["audio", "llm", "router"]


async def test_a_voice_finds_what_a_keyboard_has_stored(client: hedgerow.AsyncClient):
    await stored(client, "What is 7 plus 5?")
    answer = await client.ask(audio=SAMPLES / "seven-plus-five.wav")
    assert (answer.text, answer.cache.verdict) == ("7 plus 5 is 12.", "exact")


async def test_a_spoken_question_about_a_picture_is_one_trace(client: hedgerow.AsyncClient, collector: Collector):
    answer = await client.ask(audio=SAMPLES / "what-is-in-the-image.wav", images=[STAR], cache="bypass")
    assert answer.text == "The image shows a blue star."
    spans = await collector.wait_for(answer.trace_id, {"gateway", "audio", "vision", "llm"})
    names = {span.name for span in spans}
    assert {"audio", "vision", "llm"} <= names
    assert {"hedgerow.audio.v1.AudioService/Transcribe", "hedgerow.vision.v1.VisionService/Classify"} <= names


async def test_the_same_words_about_another_picture_never_hit(client: hedgerow.AsyncClient):
    await stored(client, WHAT, images=[CIRCLE])
    other = await client.ask(WHAT, images=[STAR], min_similarity=0.5)
    assert (other.text, other.cache.verdict) == ("The image shows a blue star.", "miss")


async def played(*recordings: Path, after: asyncio.Event | None = None) -> AsyncIterator[bytes]:
    """Recordings at their own speed; `after` is waited for, in silence, before all but the first."""
    for number, recording in enumerate(recordings):
        with wave.open(str(recording)) as file:
            block = round(file.getframerate() * BLOCK_S)
            silence = bytes(2 * block)
            while number and after and not after.is_set():
                await asyncio.sleep(BLOCK_S)
                yield silence
            while data := file.readframes(block):
                await asyncio.sleep(BLOCK_S)
                yield data


async def test_words_appear_during_speech_and_the_answer_follows(client: hedgerow.AsyncClient):
    events, over = [], False

    async def spoken() -> AsyncIterator[bytes]:
        nonlocal over
        async for block in played(CAPITAL):
            yield block
        over = True

    async with client.converse(spoken(), cache="bypass") as conversation:
        async for _, event in conversation:
            events.append((over, event))
    partials = [event.text for ended, event in events if isinstance(event, hedgerow.Transcript) and not ended]
    assert partials
    assert partials[0].startswith("What")
    (final,) = [event.answer for _, event in events if isinstance(event, hedgerow.Final)]
    assert final.text == PARIS


async def test_speech_during_an_answer_interrupts_it(client: hedgerow.AsyncClient):
    talking, kinds, answers = asyncio.Event(), [], {}
    audio = played(FOX, CAPITAL, after=talking)
    options = {"tier": "quality", "cache": "bypass", "seed": 1}
    async with client.converse(audio, **options) as conversation:
        async for turn, event in conversation:
            kinds.append((turn, type(event).__name__))
            if isinstance(event, hedgerow.TextDelta):
                talking.set()
            if isinstance(event, hedgerow.Final):
                answers[turn] = event.answer.text
    last = max(answers)
    assert PARIS in answers[last]
    # A story that is complete before the caller speaks again is not interrupted.
    assert (0, "Interrupted") in kinds or 0 in answers
