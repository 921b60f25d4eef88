"""The way of a price from the settings to an account, and of what a provider says of its cache."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.router.v1 import router_pb2
from services.gateway.http.dialects import messages_answer, responses_answer
from services.gateway.upstream import router
from services.llm.answer import Answer, More
from services.llm.dialects.anthropic_answer import AnthropicAnswer
from services.llm.dialects.openai_answer import OpenAIAnswer
from services.llm.engine import Chunk, Finish, FinishReason
from services.llm.translate import to_response
from services.router.config import ModelSettings
from services.router.servicer import RouterServicer
from services.router.table import Table
from tests.clock import PausedClock

NO_CALL: Any = None


@pytest.mark.parametrize(
    ("prices", "usd"),
    [
        ({}, 2_000 + 200),
        ({"cached_prompt_usd_per_mtok": 0.1}, 500 + 1_500 * 0.1 + 200),
        ({"cached_prompt_usd_per_mtok": 0}, 500 + 200),
        ({"cache_write_usd_per_mtok": 1.25}, 1_600 + 400 * 1.25 + 200),
        ({"cached_prompt_usd_per_mtok": 0.1, "cache_write_usd_per_mtok": 1.25}, 100 + 150 + 500 + 200),
    ],
)
async def test_a_price_of_the_routers_settings_reaches_the_gateways_account(prices: dict[str, float], usd: float):
    settings = ModelSettings(
        name="m", tier="fast", context_tokens=9, prompt_usd_per_mtok=1, completion_usd_per_mtok=2, **prices
    )
    servicer = RouterServicer(Table([settings], 60, PausedClock()), 1, 1)
    (row,) = (await servicer.ListModels(router_pb2.ListModelsRequest(), NO_CALL)).models
    cost_usd = router._model(row).cost_usd(2_000, 100, cached=1_500, written=400)
    assert cost_usd == pytest.approx(usd / 1e6, abs=1e-12)


OF_OPENAI = {
    "prompt_tokens": 2_000,
    "completion_tokens": 100,
    "prompt_tokens_details": {"cached_tokens": 1_500, "cache_write_tokens": 400},
}
OF_ANTHROPIC = {"input_tokens": 100, "cache_read_input_tokens": 1_500, "cache_creation_input_tokens": 400}
ENDED = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 100}}


@pytest.mark.parametrize(
    ("answer", "events"),
    [
        (OpenAIAnswer(), [{"choices": [], "usage": OF_OPENAI}]),
        (AnthropicAnswer(), [{"type": "message_start", "message": {"usage": OF_ANTHROPIC}}, ENDED]),
    ],
    ids=["openai", "anthropic"],
)
def test_tokens_that_a_provider_read_from_and_wrote_to_its_cache_are_billed(
    answer: Answer, events: list[dict[str, Any]]
):
    for event in events:
        answer.read(json.dumps(event), More())
    finish = to_response(Chunk("", 0, Finish(FinishReason.STOP, answer._usage)), report_cached=False).finish
    assert (finish.usage.prompt_tokens, finish.usage.completion_tokens) == (2_000, 100)
    assert (finish.billed_cached_tokens, finish.billed_cache_write_tokens) == (1_500, 400)
    assert (finish.usage.cached_prompt_tokens, finish.usage.cache_write_tokens) == (0, 0)


def test_callers_get_the_usage_in_the_fields_of_their_api():
    used = chat_pb2.Usage(
        prompt_tokens=2_000, completion_tokens=100, cached_prompt_tokens=1_500, cache_write_tokens=400
    )
    anthropic = messages_answer._usage(used)
    assert anthropic["input_tokens"] == 100
    assert (anthropic["cache_read_input_tokens"], anthropic["cache_creation_input_tokens"]) == (1_500, 400)
    details = responses_answer._usage(used)["input_tokens_details"]
    assert details == {"cached_tokens": 1_500, "cache_write_tokens": 400}
