"""How many words the demo model gets wrong on held-out sentences in eSpeak's voices: whole, and as they are spoken."""

from __future__ import annotations

from typing import Literal

import pytest

from bench.speech import Samples, compare
from services.audio.engine import Task
from services.audio.listener import ListenerSettings
from services.audio.speech import Word
from services.audio.whisper import Whisper, open_whisper
from tests.models import MODELS
from tests.spoken import SENTENCES, heard_live, recording

pytestmark = pytest.mark.timeout(300)

AT_MOST, WORSE = 0.08, 0.02  # offline; live, on top of it


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


def test_a_recording_is_transcribed_with_few_wrong_words(offline: float) -> None:
    assert offline <= AT_MOST


@pytest.mark.parametrize("policy", ["local_agreement", "windows"])
async def test_live_speech_is_transcribed_nearly_as_well(
    whisper: Whisper, spoken: Samples, offline: float, policy: Literal["local_agreement", "windows"]
) -> None:
    assert rate(await heard_live(whisper, spoken, "en", ListenerSettings(policy))) <= offline + WORSE
