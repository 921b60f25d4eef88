"""What an answer's tenant is charged: each prompt that a model has read and what it wrote, once, however it ended."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.policies.slot import SlotRequest
from services.runtime.deadline import Deadline
from services.runtime.errors import Unavailable
from tests.unit.gateway.answer.scene import MISS, Scene
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, finish, text

pytestmark = pytest.mark.paused
PROMPT = 7  # as the engine counts, and as it is estimated: 30 bytes of English


def scene(*script: object, **llms: ScriptedLlm) -> Scene:
    return Scene(ScriptedCache(MISS), **(llms or {"small": ScriptedLlm(*script), "large": ScriptedLlm(*script)}))


async def test_a_client_that_leaves_before_a_model_was_asked_pays_nothing():
    asked = scene(None)
    limiter = asked.fleet.pools["small"].limiter
    for _ in range(20):
        await limiter.enter(SlotRequest(0, "other", 1, Deadline.never()))
    async with aclosing(sent_by(asked.answer().give)) as messages:
        await anext(messages)
        reading = asyncio.create_task(anext(messages))
        while not limiter.waiting:
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait({reading})
    assert asked.billed == [0]


async def test_a_language_of_longer_characters_is_estimated_by_its_bytes():
    asked = scene(None)
    asked.budget_ms = 50
    chinese = pb.GenerateRequest().messages.add(role=1, content="法国的首都是哪里？" * 4)
    await asked.final(messages=[chinese])
    assert asked.billed == [27]


async def test_text_that_another_replica_continued_is_no_part_of_the_reported_prompt():
    rest = finish("ris.")
    rest.finish.usage.prompt_tokens, rest.finish.usage.cached_prompt_tokens = PROMPT + 1, PROMPT + 1
    asked = scene(small=[ScriptedLlm(text("Pa"), 0.01, Unavailable("broken")), ScriptedLlm(rest)])
    for _ in range(20):
        asked.fleet.count_request()
    final = await asked.final()
    assert (final.text, final.usage.prompt_tokens, final.usage.cached_prompt_tokens) == ("Paris.", PROMPT, PROMPT)
    assert final.usage.completion_tokens == 1 + 3
