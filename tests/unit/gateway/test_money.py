"""What is booked for an answer is what providers' usage and the router's prices say, to the microdollar."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from opentelemetry.trace import INVALID_SPAN
from prometheus_client import REGISTRY

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.gateway.answer.judging import Judging
from services.gateway.answer.summaries import Summaries
from services.gateway.config import JudgeSettings, PromptSettings
from services.runtime.errors import InvalidInput
from services.runtime.routing import Choice, Demand, Model, Tier, choose
from tests.unit.gateway import test_warming as warming
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, ScriptedRoutes, text
from tests.unit.gateway.test_answer import ACME, MISS, Scene
from tests.unit.gateway.test_billing import leaving
from tests.unit.gateway.test_judging import SAMPLE, Reports
from tests.waiting import until

pytestmark = pytest.mark.paused
ESTIMATE = 7  # prompt tokens: 30 bytes of English
MICRODOLLAR = 1e-6


@dataclass
class PricedRoutes(ScriptedRoutes):
    """`small` costs 100 US dollars a million prompt tokens and 200 for completions, `large` 1,000 and 3,000."""

    def choose(self, demand: Demand, below: Tier | None = None) -> Choice:
        return choose([row for name in self.names if (row := self.model(name))], demand)

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


class Counted:
    """What the metrics have counted since this was made."""

    def __init__(self) -> None:
        self._before = self._now()

    def __getitem__(self, kind: str) -> float:
        return self._now()[kind] - self._before[kind]

    def _now(self) -> dict[str, float]:
        def total(name: str, **labels: str) -> float:
            return sum(REGISTRY.get_sample_value(name, {"model": m, **labels}) or 0 for m in ("small", "large"))

        kinds = {kind: total("hedgerow_tokens_total", kind=kind) for kind in ("prompt", "completion")}
        return {"usd": total("hedgerow_cost_usd_total"), **kinds}


def talk(*script: object) -> Scene:
    return scene(small=ScriptedLlm(*script), large=ScriptedLlm(*script))


async def read_along(asked: Scene) -> tuple[float, float]:
    """One starts a generation and leaves at its first text; another reads it to its end. Returns what it cost the
    second, and both of them."""
    counted = Counted()
    first = asyncio.create_task(leaving(asked, "delta"))
    while not asked.llms["small"].calls:
        await asyncio.sleep(0)
    along = asyncio.create_task(asked.final())
    await first
    return (await along).cost_usd, counted["usd"]


async def test_when_who_began_leaves_the_rest_of_the_cost_is_on_the_account_of_who_reads_on():
    booked, counted = await read_along(talk(text("Pa"), 0.05, ends()))
    assert booked == pytest.approx(usd(0, 2, SMALL), abs=MICRODOLLAR)
    assert counted == pytest.approx(usd(7, 3, SMALL), abs=MICRODOLLAR)


async def test_those_who_read_along_count_once():
    counted, asked = Counted(), talk(text("Pa"), 0.05, ends())
    finals = await asyncio.gather(*(asked.final() for _ in range(5)))
    assert sum(final.cost_usd for final in finals) == pytest.approx(counted["usd"], abs=MICRODOLLAR)
    assert (counted["prompt"], counted["completion"]) == (7, 3)


async def test_an_answer_whose_client_leaves_is_counted():
    counted = Counted()
    await leaving(talk(text("Pa"), None), "delta")
    assert counted["usd"] == pytest.approx(usd(ESTIMATE, 1, SMALL), abs=MICRODOLLAR)


async def test_an_answer_that_fails_is_counted():
    counted, asked = Counted(), scene(small=ScriptedLlm(text("{"), ends()))
    wanted = chat_pb2.ResponseFormat(json_schema='{"type": "object"}')
    with pytest.raises(Exception, match="response_format"):
        await asked.final(response_format=wanted)
    assert counted["usd"] == pytest.approx(usd(7, 3, SMALL), abs=MICRODOLLAR)


async def test_a_judge_is_counted_and_on_no_tenants_account():
    counted, asked = Counted(), talk(text("Yes"), ends(40, 2))
    judging = Judging(JudgeSettings(model="large"), asked.backends.models, asked.backends.routes, Reports())  # type: ignore[arg-type]
    judging.submit(SAMPLE, [chat_pb2.Message(role=chat_pb2.ROLE_USER, content="?")], ACME, INVALID_SPAN)
    await until(lambda: not judging._judging)
    assert counted["usd"] == pytest.approx(usd(40, 2, LARGE), abs=MICRODOLLAR)


async def test_a_summary_of_turns_is_counted():
    counted, asked = Counted(), talk(text("They talked."), ends(50, 9))
    summaries = Summaries(PromptSettings(summary_model="small"), asked.backends.models, asked.backends.routes)
    turn: Sequence[chat_pb2.Message] = [chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Hello.")]
    assert summaries.order(ACME, [turn])
    await until(lambda: not summaries._making)
    assert counted["usd"] == pytest.approx(usd(50, 9, SMALL), abs=MICRODOLLAR)


async def test_a_prompt_that_is_warmed_is_counted():
    counted, warmed = Counted(), warming.Scene(small=warming.llm())
    async with warmed.running():
        await asyncio.sleep(5)
    assert counted["usd"] == pytest.approx(2 * usd(7, 3, (1, 2)), abs=MICRODOLLAR / 1_000)


async def test_the_most_that_may_be_spent_is_of_each_call_and_not_of_the_answer():
    limit = usd(ESTIMATE, 3, LARGE) * 1.01
    with pytest.raises(InvalidInput, match="max_cost_usd"):
        await scene().final(model="large", max_cost_usd=limit, sampling=chat_pb2.Sampling(max_tokens=4))
    asked = scene(small=ScriptedLlm(None), large=ScriptedLlm(text("Pa"), ends()))
    sampling = chat_pb2.Sampling(max_tokens=3)
    final = await asked.final(first_token_budget_ms=50, max_cost_usd=limit, sampling=sampling)
    assert final.model == "large"
    assert final.cost_usd == pytest.approx(usd(ESTIMATE, 0, SMALL) + usd(7, 3, LARGE), abs=MICRODOLLAR)
