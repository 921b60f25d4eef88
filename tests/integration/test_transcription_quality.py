"""How many words the demo model gets wrong on held-out sentences in eSpeak's voices: whole, and as they are spoken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Literal

import pytest

from bench.speech import Samples, compare
from services.audio.engine import Task
from services.audio.listener import Listener, ListenerSettings
from services.audio.speech import RATE, Audio, Segment, Word
from services.audio.whisper import Whisper, open_whisper
from tests.models import MODELS
from tests.spoken import SENTENCES, recording

pytestmark = pytest.mark.timeout(300)

AT_MOST, WORSE = 0.08, 0.02  # offline; live, on top of it
PACKET = RATE * 60 // 1000


@pytest.fixture(scope="module")
def whisper() -> Whisper:
    return open_whisper(str(MODELS / "demo-whisper"), "cpu", "int8", 1)


@pytest.fixture(scope="module")
def spoken() -> Samples:
    return recording()


@pytest.fixture(scope="module")
def offline(whisper: Whisper, spoken: Samples) -> float:
    """The word error rate of the recording, transcribed as a whole."""
    return rate([word for found in whisper.transcribe(spoken, Task("en"), lambda: 4) for word in found.words])


def rate(words: list[Word]) -> float:
    return compare(" ".join(SENTENCES).split(), [word.text for word in words]).rate


async def live(whisper: Whisper, spoken: Samples, policy: Literal["local_agreement", "windows"]) -> list[Word]:
    """The transcript of a listener. Its runs go by the time of the audio, so that it may come as fast as it is
    heard."""

    async def transcribe(audio: Audio, paused: bool) -> Sequence[Word]:
        return whisper.transcribe_utterance(audio, "en").words

    async def packets() -> AsyncIterator[Audio]:
        for start in range(0, len(spoken), PACKET):
            yield spoken[start : start + PACKET]
            for _ in range(8):  # the run that this makes due
                await asyncio.sleep(0)

    async with aclosing(Listener(transcribe, ListenerSettings(policy)).listen(packets())) as events:  # type: ignore[type-var]
        return [word async for event in events if isinstance(event, Segment) for word in event.words]


def test_a_recording_is_transcribed_with_few_wrong_words(offline: float) -> None:
    assert offline <= AT_MOST


@pytest.mark.parametrize("policy", ["local_agreement", "windows"])
async def test_live_speech_is_transcribed_nearly_as_well(
    whisper: Whisper, spoken: Samples, offline: float, policy: Literal["local_agreement", "windows"]
) -> None:
    assert rate(await live(whisper, spoken, policy)) <= offline + WORSE
