"""What is booked for an answer is what providers' usage and the router's prices say, to the microdollar."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.runtime.routing import Model
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, ScriptedRoutes, text
from tests.unit.gateway.test_answer import MISS, Scene

pytestmark = pytest.mark.paused
ESTIMATE = 7  # prompt tokens: 30 bytes of English
MICRODOLLAR = 1e-6


@dataclass
class PricedRoutes(ScriptedRoutes):
    """`small` costs 100 US dollars a million prompt tokens and 200 for completions, `large` 1,000 and 3,000."""

    def model(self, name: str) -> Model | None:
        row = super().model(name)
        prices = (100, 200) if name == "small" else (1_000, 3_000)
        return row and replace(row, prompt_usd_per_mtok=prices[0], completion_usd_per_mtok=prices[1])


def scene(**llms: ScriptedLlm) -> Scene:
    return Scene(ScriptedCache(MISS), PricedRoutes(), **llms)


def ends(prompt: int = ESTIMATE, completion: int = 3, **usage: int) -> llm_pb2.GenerateResponse:
    """The last message of a provider that says what it has read and written."""
    told = chat_pb2.Usage(prompt_tokens=prompt, completion_tokens=completion, **usage)
    finish = llm_pb2.Finish(reason=chat_pb2.FINISH_REASON_STOP, usage=told)
    return llm_pb2.GenerateResponse(text="ris.", tokens=1, finish=finish)


def usd(prompt_tokens: float, completion_tokens: float, prices: tuple[float, float]) -> float:
    return (prompt_tokens * prices[0] + completion_tokens * prices[1]) / 1e6


SMALL, LARGE = (100, 200), (1_000, 3_000)


async def test_a_prompt_that_two_models_have_read_costs_the_price_of_each():
    asked = scene(small=ScriptedLlm(None), large=ScriptedLlm(text("Pa"), ends()))
    final = await asked.final(first_token_budget_ms=50)
    assert final.model == "large"
    assert final.cost_usd == pytest.approx(usd(ESTIMATE, 0, SMALL) + usd(7, 3, LARGE), abs=MICRODOLLAR)
