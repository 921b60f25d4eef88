"""A public language model by gRPC: forms, limits and reports, never its exact words."""

from __future__ import annotations

import json

import pytest

import hedgerow
from hedgerow.channel import open_channel
from hedgerow.llm.v1 import llm_pb2, llm_pb2_grpc
from launcher.demo import PULLED
from tests.integration.running_up import Up

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]
INT8, BF16, *_ = PULLED
CITY = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "population": {"type": "integer", "maximum": 10**8}},
    "required": ["name", "population"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("model", [INT8, BF16])
async def test_an_answer_comes_from_the_model_that_was_named_and_keeps_its_cap(
    client: hedgerow.AsyncClient, model: str
) -> None:
    answer = await client.ask("Name three animals.", model=model, max_tokens=24, cache="bypass")
    assert answer.model == model
    assert answer.text.strip()
    assert answer.finish_reason in ("stop", "length")
    assert 0 < answer.usage.completion_tokens <= 24
    assert not answer.degraded


async def test_the_same_question_is_an_exact_hit_and_a_paraphrase_a_semantic_one(client: hedgerow.AsyncClient) -> None:
    question = "How many legs does a spider have?"
    while not (first := await client.ask(question, max_tokens=300)).cache.key:  # stored once its client has it
        assert first.finish_reason == "stop"
    assert (await client.ask(question, max_tokens=300)).cache.verdict == "exact"
    again = await client.ask("How many legs has a spider?", max_tokens=300, min_similarity=0.8)
    assert (again.cache.verdict, again.text) == ("semantic", first.text)


async def test_an_answer_matches_its_schema(client: hedgerow.AsyncClient) -> None:
    answer = await client.ask("Describe a city.", json_schema=CITY, tier="quality", cache="bypass")
    assert set(json.loads(answer.text)) == {"name", "population"}


async def test_a_model_without_tools_in_its_template_calls_them_by_their_schema(
    client: hedgerow.AsyncClient,
) -> None:
    weather = hedgerow.Tool(
        "get_weather",
        "Get the current weather of a city.",
        {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]},
    )
    free = await client.ask("What is the weather in Oslo?", tools=[weather], tier="quality", max_tokens=60)
    assert free.finish_reason in ("stop", "length", "tool_calls")  # to call or not is the model's choice
    forced = await client.ask(
        "What is the weather in Oslo?",
        tools=[weather],
        tool_choice="required",
        parallel_tool_calls=False,
        tier="quality",
    )
    assert [call.name for call in forced.tool_calls] == ["get_weather"]
    assert isinstance(forced.tool_calls[0].parsed()["city"], str)


async def test_a_model_samples_as_its_authors_say_unless_a_request_says_otherwise(up: Up) -> None:
    async with open_channel(up.address("llm-quality")) as channel:
        model = await llm_pb2_grpc.LLMServiceStub(channel).GetModel(llm_pb2.GetModelRequest(), timeout=20)
    assert model.default_sampling.temperature == pytest.approx(0.2)
    assert model.default_sampling.top_p == pytest.approx(0.9)
