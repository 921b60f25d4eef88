"""What an answer's tenant is charged: each prompt that a model has read and what it wrote, once, however it ended."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.policies.ticket import Ticket
from services.runtime.deadline import Deadline
from services.runtime.errors import Exhausted, InvalidInput, ServiceError, Unavailable
from tests.unit.gateway.answer.scene import EXACT, MISS, Scene
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, finish, text
from tests.waiting import until

pytestmark = pytest.mark.paused
PROMPT = 7  # as the engine counts, and as it is estimated: 30 bytes of English
WHOLE = PROMPT + 3


def scene(*script: object, **llms: ScriptedLlm) -> Scene:
    return Scene(ScriptedCache(MISS), **(llms or {"small": ScriptedLlm(*script), "large": ScriptedLlm(*script)}))


async def leaving(asked: Scene, kind: str) -> None:
    """Ask, and leave at the first event of a kind; with `accepted`, once the model is asked."""
    async with aclosing(sent_by(asked.answer().give)) as messages:
        async for message in messages:
            if any(event.WhichOneof("kind") == kind for event in message.events):
                if kind != "accepted":
                    return
                break
        reading = asyncio.create_task(anext(messages))
        await until(lambda: asked.llms["small"].calls, every_s=0.001)
        reading.cancel()
        await asyncio.wait({reading})


async def test_a_whole_answer_costs_what_the_engine_says():
    asked = scene(text("Pa"), finish("ris."))
    await asked.final()
    assert asked.billed == [WHOLE]


async def test_an_answer_that_the_budget_cuts_costs_its_prompt_and_what_was_written():
    asked = scene(text("Pa"), text("ris"), None)
    asked.budget_ms = 100
    await asked.final()
    assert asked.billed == [PROMPT + 2]


async def test_an_answer_whose_first_text_never_came_costs_its_prompt():
    asked = scene(None)
    asked.budget_ms = 100
    await asked.final()
    assert asked.billed == [PROMPT]


async def test_who_leaves_pays_for_what_was_read_and_written_until_then():
    asked = scene(text("Pa"), None)
    await leaving(asked, "delta")
    assert asked.billed == [PROMPT + 1]


async def test_who_leaves_before_the_first_text_pays_for_the_prompt():
    asked = scene(None)
    await leaving(asked, "accepted")
    assert asked.billed == [PROMPT]


async def test_who_leaves_before_a_model_was_asked_pays_nothing():
    asked = scene(None)
    limiter = asked.fleet.pools["small"].limiter
    for _ in range(20):
        await limiter.enter(Ticket(0, "other", 1, Deadline.never()))
    async with aclosing(sent_by(asked.answer().give)) as messages:
        await anext(messages)
        reading = asyncio.create_task(anext(messages))
        while not limiter.waiting:
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait({reading})
    assert asked.billed == [0]


async def test_an_answer_that_breaks_in_the_middle_costs_what_it_had():
    asked = scene(text("Pa"), Unavailable("broken"))
    await asked.final(single_attempt=True)
    assert asked.billed == [PROMPT + 1]


async def test_a_hit_costs_nothing():
    asked = Scene(ScriptedCache(EXACT), small=ScriptedLlm())
    await asked.final()
    assert asked.billed == [0]


@pytest.mark.parametrize(
    "problem", [Unavailable("gone"), Exhausted("busy", retry_delay_s=1.0), InvalidInput("messages", "shorter", "long")]
)
async def test_what_a_model_refused_or_broke_at_before_its_first_text_costs_nothing(problem: ServiceError):
    asked = scene(problem)
    with suppress(ServiceError):
        await asked.final()
    assert asked.billed == [0]


async def test_a_prompt_that_two_models_have_read_costs_twice():
    asked = scene(small=ScriptedLlm(None), large=ScriptedLlm(text("Pa"), finish("ris.")))
    await asked.final(first_token_budget_ms=50)
    assert asked.billed == [2 * PROMPT + 3]


async def test_a_prompt_that_only_one_of_two_models_has_read_costs_once():
    asked = scene(small=ScriptedLlm(Unavailable("gone")), large=ScriptedLlm(text("Pa"), finish("ris.")))
    await asked.final()
    assert asked.billed == [WHOLE]


async def test_those_who_read_along_pay_together_what_one_would():
    asked = scene(text("Pa"), 0.05, finish("ris."))
    await asyncio.gather(*(asked.final() for _ in range(5)))
    assert (len(asked.llms["small"].calls), sum(asked.billed)) == (1, WHOLE)


async def test_when_who_began_leaves_the_others_pay_all_of_it():
    asked = scene(text("Pa"), 0.05, finish("ris."))
    first = asyncio.create_task(leaving(asked, "delta"))
    while not asked.llms["small"].calls:
        await asyncio.sleep(0)
    along = asyncio.create_task(asked.final())
    await first
    assert asked.billed == [0]
    assert (await along).text == "Paris."
    assert sum(asked.billed) == WHOLE


async def test_a_language_of_longer_characters_is_estimated_by_its_bytes():
    asked = scene(None)
    asked.budget_ms = 50
    chinese = pb.GenerateRequest().messages.add(role=1, content="法国的首都是哪里？" * 4)
    await asked.final(messages=[chinese])
    assert asked.billed == [27]
