"""A public Whisper and a public ImageNet classifier: a natural voice, photographs, by gRPC and HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jiwer
import pytest
import pytest_asyncio

import hedgerow
from tests.integration.running_up import Up

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]
TESTS = Path(__file__).parents[2]
RECORDINGS, PHOTOGRAPHS = TESTS / "recordings", TESTS / "photographs"
SPOKEN: dict[str, str] = json.loads((RECORDINGS / "texts.json").read_text())
SHOWN: dict[str, dict[str, Any]] = json.loads((PHOTOGRAPHS / "expected.json").read_text())


def word_error_rate(said: list[str], heard: list[str]) -> float:
    """Spelling, case and punctuation are the model's own."""
    from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

    plain = EnglishTextNormalizer({})
    return jiwer.wer([plain(text) for text in said], [plain(text) for text in heard])


@pytest_asyncio.fixture(loop_scope="session")
async def audio(up: Up) -> AsyncIterator[hedgerow.AsyncAudioClient]:
    async with hedgerow.AsyncAudioClient(up.address("audio")) as connected:
        yield connected


@pytest_asyncio.fixture(loop_scope="session")
async def vision(up: Up) -> AsyncIterator[hedgerow.AsyncVisionClient]:
    async with hedgerow.AsyncVisionClient(up.address("vision")) as connected:
        yield connected


async def test_a_natural_voice_is_transcribed(audio: hedgerow.AsyncAudioClient) -> None:
    heard = [(await audio.transcribe(RECORDINGS / name)).text for name in SPOKEN]
    assert word_error_rate(list(SPOKEN.values()), heard) <= 0.08


@pytest.mark.parametrize("photograph", sorted(SHOWN))
async def test_a_photograph_is_named(vision: hedgerow.AsyncVisionClient, photograph: str) -> None:
    expected = SHOWN[photograph]
    (labels,) = (await vision.classify(PHOTOGRAPHS / photograph, top_k=5)).results
    if expected["indices"] is None:  # ImageNet has no class for it: the model is not sure of any
        assert labels[0].score <= expected["most"]
    else:
        assert {label.index for label in labels[: expected["within"]]} & set(expected["indices"])


async def test_a_spoken_question_about_a_photograph_is_answered(client: hedgerow.AsyncClient) -> None:
    name = min(SPOKEN)
    answer = await client.ask(audio=RECORDINGS / name, images=[PHOTOGRAPHS / min(SHOWN)], max_tokens=24)
    assert word_error_rate([SPOKEN[name]], [answer.transcript]) <= 0.25
    assert answer.sights[0]
    assert answer.text.strip()
    assert not [stage for stage in answer.degraded if stage.startswith(("audio", "vision"))]
