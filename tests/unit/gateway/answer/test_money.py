"""What is booked for an answer is what providers' usage and the router's prices say, to the microdollar: on the account
of the tenant, and in the metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

import pytest
from opentelemetry.trace import INVALID_SPAN

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.answer.stages.cache.verification import CacheVerification
from services.gateway.answer.summaries import Summaries
from services.gateway.settings.generation import JudgeSettings
from services.gateway.settings.prompt import PromptSettings
from services.runtime.errors import Exhausted, InvalidInput, ServiceError, Unavailable
from tests.unit.gateway import test_prefix_warmup as warming
from tests.unit.gateway.answer.priced import MICRODOLLAR, Counted, PricedRoutes, Used, ends, says, scene
from tests.unit.gateway.answer.scene import ACME, Scene
from tests.unit.gateway.answer.stages.cache.test_verification import SAMPLE, Reports
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import ScriptedLlm, text
from tests.unit.gateway.upstream.scripted_call import ScriptedLlm as OverACall
from tests.waiting import until

pytestmark = pytest.mark.paused
ESTIMATE = 7  # prompt tokens: 30 bytes of English


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


@dataclass(frozen=True)
class Case:
    """Models by name and how they answer, and what their providers bill."""

    llms: Mapping[str, object]
    billed: Sequence[Used]
    fields: Mapping[str, object] = field(default_factory=dict)
    policies: Mapping[str, object] = field(default_factory=dict)


HEDGE = {"hedge": {"mode": "fixed", "delay_ms": 100, "max_share": 1, "across_models": True}}
RETRY = {"retry": {"max_share": 1}}
JSON = chat_pb2.ResponseFormat(json_schema='{"type": "object"}')
CASES = {
    "one call": lambda: Case({"small": says()}, [Used("small", 2_000, 100)]),
    "hidden thoughts": lambda: Case({"small": says(ends(2_000, 900))}, [Used("small", 2_000, 900)]),
    "read from the provider's cache": lambda: Case(
        {"small": says(text("Pa"), ends(read=1_900))}, [Used("small", 2_000, 100, cached=1_900)]
    ),
    "written to the provider's cache": lambda: Case(
        {"small": says(text("Pa"), ends(written=1_500))}, [Used("small", 2_000, 100, written=1_500)]
    ),
    "read and written": lambda: Case(
        {"small": says(ends(read=1_200, written=300))}, [Used("small", 2_000, 100, cached=1_200, written=300)]
    ),
    "a cache without prices of its own": lambda: Case(
        {"large": says(ends(read=1_200, written=300))}, [Used("large", 2_000, 100, cached=1_200, written=300)]
    ),
    "a provider that reports no usage": lambda: Case(
        {"small": says(text("Pa"), ends(0, 0))}, [Used("small", ESTIMATE, 2)]
    ),
    "a retry of a call that was refused": lambda: Case(
        {"small": [says(Unavailable("gone")), says()]}, [Used("small", 2_000, 100)], policies=RETRY
    ),
    "a fallback from one that is broken": lambda: Case(
        {"small": says(Unavailable("gone")), "large": says()}, [Used("large", 2_000, 100)]
    ),
    "a fallback from one that is throttled": lambda: Case(
        {"small": says(Exhausted("busy", retry_delay_s=1.0)), "large": says()}, [Used("large", 2_000, 100)]
    ),
    "a fallback from one that is late": lambda: Case(
        {"small": says(None), "large": says()},
        [Used("small", 2_000, 0), Used("large", 2_000, 100)],
        {"first_token_budget_ms": 50},
    ),
    "a hedge that another model wins": lambda: Case(
        {"small": says(0.5, text("Pa"), ends()), "large": says()},
        [Used("small", 2_000, 0), Used("large", 2_000, 100)],
        policies=HEDGE,
    ),
    "a hedge that another model loses": lambda: Case(
        {"small": says(0.2, text("Pa"), ends(read=500)), "large": says(0.5, ends())},
        [Used("small", 2_000, 100, cached=500), Used("large", 2_000, 0)],
        policies=HEDGE,
    ),
    "a hedge within one model": lambda: Case(
        {"small": [says(0.5, ends()), says()]}, [Used("small", 2_000, 0), Used("small", 2_000, 100)], policies=HEDGE
    ),
    "an answer that breaks and goes on elsewhere": lambda: Case(
        {"small": [says(text("Pa"), Unavailable("gone")), says(ends(2_001, 99))]},
        [Used("small", 2_000, 1), Used("small", 2_001, 99)],
        policies=RETRY,
    ),
    "an answer whose first text never comes": lambda: Case({"small": says(None)}, [Used("small", ESTIMATE, 0)]),
    "an answer that its budget cuts": lambda: Case(
        {"small": says(text("Pa"), text("ri"), None)}, [Used("small", ESTIMATE, 2)]
    ),
    "a cascade that passes": lambda: Case(
        {"small": says(), "large": says()}, [Used("small", 2_000, 100)], {"cascade": pb.Cascade()}
    ),
    "a cascade whose judge, the better model, has it answer": lambda: Case(
        {"small": says(), "large": says()},
        [Used("small", 2_000, 100), *2 * [Used("large", 2_000, 100)]],
        {"cascade": pb.Cascade(verifiers=[pb.VERIFIER_JUDGE])},
    ),
    "a form that is repaired": lambda: Case(
        {"small": ScriptedLlm(scripts=[(text("{"), ends()), (text('{"a": "'), text('"}'), whole())])},
        [Used("small", 2_000, 100), Used("small", 2_100, 50)],
        {"response_format": JSON, "repair": True},
    ),
}


def whole() -> llm_pb2.GenerateResponse:
    last = ends(2_100, 50)
    last.text = ""
    return last


@pytest.mark.parametrize("name", CASES)
async def test_the_account_and_the_metrics_have_what_the_providers_bill(name: str):
    case, counted = CASES[name](), Counted()
    asked = scene(case.policies, **case.llms)
    final = await asked.final(**case.fields)
    assert final.cost_usd == pytest.approx(sum(used.usd for used in case.billed), abs=MICRODOLLAR / 1_000)
    assert asked.billed == [sum(used.tokens for used in case.billed)]
    counted.assert_is(*case.billed)


@pytest.mark.parametrize(
    ("model", "usd_of_a_million"),
    [
        ("claude", 300 * 3 + 1_200 * 0.3 + 500 * 3.75 + 100 * 15),
        ("gpt", (300 + 500) * 0.25 + 1_200 * 0.025 + 100 * 2),  # which has no price for writing to its cache
    ],
)
async def test_public_prices_are_those_that_are_billed_with_what_the_providers_cache_read_and_wrote(
    model: str, usd_of_a_million: float
):
    counted, asked = Counted(), scene(**{model: says(text("Pa"), ends(read=1_200, written=500))})
    final = await asked.final()
    assert final.cost_usd == pytest.approx(usd_of_a_million / 1e6, abs=MICRODOLLAR / 1_000)
    assert counted["usd"] == pytest.approx(final.cost_usd, abs=MICRODOLLAR / 1_000)


async def test_an_answer_that_fails_is_billed_and_counted():
    counted, asked = Counted(), scene(small=says(text("{"), ends()))
    with pytest.raises(ServiceError, match="response_format"):
        await asked.final(response_format=JSON)
    counted.assert_is(Used("small", 2_000, 100))
    assert asked.billed == [2_100]


@pytest.mark.parametrize("kind", ["delta", "accepted"])
async def test_an_answer_whose_client_leaves_is_billed_and_counted(kind: str):
    counted, script = Counted(), (text("Pa"), None) if kind == "delta" else (None,)
    asked = scene(small=says(*script))
    await leaving(asked, kind)
    counted.assert_is(Used("small", ESTIMATE, int(kind == "delta")))
    assert asked.billed == [ESTIMATE + int(kind == "delta")]


async def test_an_answer_that_its_engine_broke_off_costs_what_the_engine_says():
    broken = ends(2_000, 150, read=1_900)
    broken.finish.reason = chat_pb2.FINISH_REASON_INTERRUPTED
    counted, asked = Counted(), scene(small=OverACall(text("Pa"), broken))
    final = await asked.final()
    used = Used("small", 2_000, 150, cached=1_900)
    assert final.finish_reason == chat_pb2.FINISH_REASON_INTERRUPTED
    assert final.cost_usd == pytest.approx(used.usd, abs=MICRODOLLAR / 1_000)
    counted.assert_is(used)


async def test_when_the_first_reader_leaves_the_cost_is_in_the_report_of_the_remaining_one():
    counted, asked = Counted(), scene(small=says(text("Pa"), 0.05, ends(read=1_900)))
    first = asyncio.create_task(leaving(asked, "delta"))
    while not asked.llms["small"].calls:
        await asyncio.sleep(0)
    along = asyncio.create_task(asked.final())
    await first
    used = Used("small", 2_000, 100, cached=1_900)
    assert (await along).cost_usd == pytest.approx(used.usd, abs=MICRODOLLAR / 1_000)
    assert asked.billed == [0, used.tokens]
    counted.assert_is(used)


async def test_when_a_joined_reader_leaves_the_cost_is_in_the_report_of_the_first_one():
    counted, asked = Counted(), scene(small=says(text("Pa"), 0.05, ends()))
    first = asyncio.create_task(asked.final())
    while not asked.llms["small"].calls:
        await asyncio.sleep(0)
    await leaving(asked, "delta")
    assert (await first).cost_usd == pytest.approx(Used("small", 2_000, 100).usd, abs=MICRODOLLAR / 1_000)
    assert asked.billed == [0, 2_100]
    counted.assert_is(Used("small", 2_000, 100))


async def test_when_all_readers_leave_the_last_is_billed_for_the_usage_so_far():
    counted, asked = Counted(), scene(small=says(text("Pa"), 0.05, text("ri"), None))
    await asyncio.gather(leaving(asked, "delta"), leaving(asked, "delta"))
    assert sorted(asked.billed) == [0, ESTIMATE + 1]
    counted.assert_is(Used("small", ESTIMATE, 1))


async def test_no_hedge_is_sent_once_the_last_reader_has_left_and_is_billed():
    counted, asked = Counted(), scene(HEDGE, small=says(None), large=says(None))
    loop, after_s = asyncio.get_running_loop(), HEDGE["hedge"]["delay_ms"] / 1000  # type: ignore[operator]
    answer = loop.create_task(asked.answer().give())
    loop.call_later(after_s - 1e-10, answer.cancel)  # in the turn of the event loop in which the hedge begins
    await asyncio.wait({answer})
    assert (len(asked.llms["large"].calls), asked.billed) == (0, [ESTIMATE])
    counted.assert_is(Used("small", ESTIMATE, 0))


async def test_joined_readers_count_once():
    counted, asked = Counted(), scene(small=says(text("Pa"), 0.05, ends()))
    finals = await asyncio.gather(*(asked.final() for _ in range(5)))
    assert sum(final.cost_usd for final in finals) == pytest.approx(counted["usd"], abs=MICRODOLLAR / 1_000)
    assert (len(asked.llms["small"].calls), sum(asked.billed)) == (1, 2_100)
    counted.assert_is(Used("small", 2_000, 100))


async def test_hits_of_a_providers_shared_cache_are_in_the_metrics_and_not_in_a_tenants_cost():
    counted, asked = Counted(), scene(small=says(text("Pa"), ends(reports_cache=False, read=1_900)))
    final = await asked.final()
    assert final.cost_usd == pytest.approx(Used("small", 2_000, 100).usd, abs=MICRODOLLAR / 1_000)
    assert final.usage.cached_prompt_tokens == 0
    counted.assert_is(Used("small", 2_000, 100, cached=1_900))


async def test_a_judge_is_counted_and_on_no_tenants_account():
    counted, asked = Counted(), scene(large=says(text("Yes"), ends(40, 2)))
    judging = CacheVerification(JudgeSettings(model="large"), asked.backends.models, asked.backends.routes, Reports())  # type: ignore[arg-type]
    judging.submit(SAMPLE, [chat_pb2.Message(role=chat_pb2.ROLE_USER, content="?")], ACME, INVALID_SPAN)
    await until(lambda: not judging._judging)
    counted.assert_is(Used("large", 40, 2))
    assert asked.billed == []


async def test_a_summary_of_turns_is_counted():
    counted, asked = Counted(), scene(small=says(text("They talked."), ends(50, 9)))
    summaries = Summaries(PromptSettings(summary_model="small"), asked.backends.models, asked.backends.routes)
    turn: Sequence[chat_pb2.Message] = [chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Hello.")]
    assert summaries.order(ACME, [turn])
    await until(lambda: not summaries._making)
    counted.assert_is(Used("small", 50, 9))


async def test_a_prompt_that_is_warmed_is_counted():
    counted, warmed = Counted(), warming.Scene(small=says(text("I"), ends(300, 1, read=200)))
    warmed.routes = PricedRoutes(("small",))
    warmed.warming._routes = warmed.routes  # type: ignore[assignment]
    await warmed.ran()
    counted.assert_is(*2 * [Used("small", 300, 1, cached=200)])


async def test_the_most_that_may_be_spent_is_of_each_call_and_not_of_the_answer():
    limit = Used("large", ESTIMATE, 3).usd * 1.01
    sampling = chat_pb2.Sampling(max_tokens=3)
    asked = scene(small=says(None), large=says(text("Pa"), ends(ESTIMATE, 3)))
    final = await asked.final(first_token_budget_ms=50, max_cost_usd=limit, sampling=sampling)
    assert final.model == "large"
    assert final.cost_usd > limit
    with pytest.raises(InvalidInput, match="max_cost_usd"):
        await asked.final(model="large", max_cost_usd=limit, sampling=chat_pb2.Sampling(max_tokens=4))


async def test_the_most_that_a_call_may_cost_includes_writing_its_prompt_to_the_providers_cache():
    plain, written = Used("small", ESTIMATE, 3), Used("small", ESTIMATE, 3, written=ESTIMATE)
    sampling = chat_pb2.Sampling(max_tokens=3)
    with pytest.raises(InvalidInput, match="max_cost_usd"):
        await scene(small=says()).final(max_cost_usd=(plain.usd + written.usd) / 2, sampling=sampling)
    with suppress(ServiceError):
        assert (await scene(small=says()).final(max_cost_usd=written.usd * 1.01, sampling=sampling)).text
