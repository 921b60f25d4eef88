"""Many calls at once: how many a provider takes is its own decision."""

from __future__ import annotations

import asyncio

import openai
import pytest

from tests.integration.unchanged.transparent import Transparent
from tests.recording_provider import RecordingProvider
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")
_CALLS = 100


async def test_a_hundred_calls_that_begin_at_once_are_all_at_the_provider_at_once(
    served: Transparent, provider: RecordingProvider
) -> None:
    provider.opens = asyncio.Event()
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        asked = client.chat.completions.create
        calls = [asked(model="gpt", messages=[{"role": "user", "content": f"{n}?"}]) for n in range(_CALLS)]
        answers = asyncio.gather(*calls)
        await until(lambda: len(provider.asked) == _CALLS or answers.done())
        provider.opens.set()
        assert all(answer.choices[0].message.content for answer in await answers)
