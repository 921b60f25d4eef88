"""Questions to the whole mesh, answered by the demo models."""

from __future__ import annotations

import random
from functools import partial

import pytest

import hedgerow
from tests.integration.collector import Collector
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]
FRANCE, PARIS = "What is the capital of France?", "The capital of France is Paris."


async def stored(client: hedgerow.AsyncClient, question: str, **options) -> hedgerow.Answer:
    """Ask until the answer comes from the cache, which gets it after the client: the hit has a key then."""
    return await until(lambda: client.ask(question, **options), holds=lambda answer: answer.cache.key)


async def test_a_question_is_answered_and_then_again_from_the_cache(client: hedgerow.AsyncClient):
    system = f"You are a small demo assistant. Answer briefly. {random.random()}"  # no other test's entry
    first = await client.ask(FRANCE, system=system, temperature=0)
    assert (first.text, first.finish_reason, first.cache.verdict) == (PARIS, "stop", "miss")
    assert first.degraded == ()
    assert {stage.name for stage in first.stages} == {"cache", "router", "llm"}
    again = await stored(client, FRANCE, system=system, temperature=0)
    assert (again.text, again.model, again.cache.similarity) == (PARIS, first.model, 1)


async def test_a_paraphrase_hits_at_a_threshold_that_admits_it_and_another_country_never_does(
    client: hedgerow.AsyncClient,
):
    await stored(client, FRANCE)
    paraphrase = await client.ask("Tell me the capital of France.", min_similarity=0.85)
    assert (paraphrase.text, paraphrase.cache.verdict) == (PARIS, "semantic")
    assert 0.85 <= paraphrase.cache.similarity < 1
    other = await client.ask("Tell me the capital of Spain.", min_similarity=0.5)
    assert (other.text, other.cache.verdict) == ("The capital of Spain is Madrid.", "miss")


async def test_a_conversation_of_sixty_turns_stays_within_the_context_and_reuses_its_prefix(
    client: hedgerow.AsyncClient,
):
    turns, answers = [], []
    for turn in range(60):
        turns += [
            hedgerow.Message("user", f"Question {turn}: {FRANCE} Please say it in one short sentence."),
            hedgerow.Message("assistant", f"Answer {turn}: {PARIS} It lies on the river Seine."),
        ]
        if turn > 40:
            asked = [hedgerow.Message("system", "Answer briefly."), *turns, hedgerow.Message("user", FRANCE)]
            ask = partial(client.ask, asked, model="demo-llm", cache="bypass", max_tokens=16, temperature=0)
            # A busy machine counts some too late, and such a prompt is estimated.
            answers.append(await until(ask, 30, holds=lambda answer: not answer.prompt.estimated))
    assert {answer.finish_reason for answer in answers} <= {"stop", "length"}
    fitted = [answer.prompt for answer in answers]
    assert all(report and not report.estimated for report in fitted)
    assert max(report.tokens_after for report in fitted) <= 2_048 - 16 < fitted[-1].tokens_before
    assert all(
        report.tokens_after == answer.usage.prompt_tokens for report, answer in zip(fitted, answers, strict=True)
    )
    assert 1 < len({report.dropped_turns for report in fitted}) <= 6
    reused = sum(answer.usage.cached_prompt_tokens for answer in answers[1:])
    assert reused > 0.5 * sum(answer.usage.prompt_tokens for answer in answers[1:])


async def test_a_request_is_one_trace_with_every_stage_and_its_budget(
    client: hedgerow.AsyncClient, collector: Collector
):
    answer = await client.ask("What is the opposite of hot?", tier="quality", cache="use", max_tokens=77)
    spans = await collector.wait_for(answer.trace_id, {"gateway", "cache", "llm"})
    by_name = {span.name: span for span in spans}
    root = by_name["hedgerow.gateway.v1.GatewayService/Generate"]
    assert root.parent_id == b""
    assert root.attributes["hedgerow.cache.verdict"] == "miss"
    for name in ("cache", "router", "llm"):
        stage = by_name[name]
        assert stage.parent_id == root.span_id
        assert stage.attributes["hedgerow.stage.budget_ms"] > 0
        assert stage.attributes["hedgerow.stage.outcome"] == "ok"
    served = {span.service: span for span in spans if span.service != "gateway"}
    assert served["cache"].parent_id == by_name["cache"].span_id
    assert served["llm"].parent_id == by_name["llm"].span_id
    assert served["llm"].attributes["gen_ai.request.model"] == "demo-llm"
    assert served["llm"].attributes["gen_ai.usage.output_tokens"] == answer.usage.completion_tokens
