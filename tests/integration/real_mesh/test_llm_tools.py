"""The demo's models call tools where one fits, on the real engine behind the real gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from openai import AsyncOpenAI

import hedgerow
from hedgerow import Message, Tool
from tests.integration.command import run
from tests.integration.running_up import Up

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


STRING = {"type": "string"}
WEATHER = Tool("get_weather", "Get the current weather.", schema(city=STRING))
CLOCK = Tool("clock", "Tells the time.", schema(city=STRING))
CAPITAL = Tool("capital_of", "The capital of a country.", schema(country=STRING))
TOOLS = (WEATHER, CLOCK, CAPITAL)
OSLO, OSLO_ROME = "What is the weather in Oslo?", "What is the weather in Oslo and in Rome?"


@pytest_asyncio.fixture(loop_scope="session")
async def openai_client(up: Up) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's own client, which speaks to the mesh."""
    async with AsyncOpenAI(base_url=f"http://{up.target}/v1", api_key="none", max_retries=0) as connected:
        yield connected


async def ask(
    client: hedgerow.AsyncClient, prompt: str | Sequence[Message], tools: Sequence[Tool] = TOOLS, **options: Any
) -> hedgerow.Answer:
    options = {"tier": "quality", "temperature": 0, "cache": "bypass", **options}
    return await client.ask(prompt, tools=tools, **options)


def called(answer: hedgerow.Answer) -> list[tuple[str, Any]]:
    """The calls of an answer that is nothing else."""
    assert (answer.text, answer.finish_reason) == ("", "tool_calls")
    return [(call.name, call.parsed()) for call in answer.tool_calls]


async def test_a_tool_that_fits_is_called(client: hedgerow.AsyncClient) -> None:
    answer = await ask(client, OSLO)
    assert called(answer) == [("get_weather", {"city": "Oslo"})]
    assert answer.usage.accepted_tokens > 0
    assert called(await ask(client, "What time is it in Oslo?")) == [("clock", {"city": "Oslo"})]
    assert called(await ask(client, "What is the capital of Kenya?")) == [("capital_of", {"country": "Kenya"})]


async def test_a_strict_tool_is_called_as_its_schema_says(client: hedgerow.AsyncClient) -> None:
    integer, operation = {"type": "integer"}, {"type": "string", "enum": ["plus", "minus", "times"]}
    calculate = Tool("calculate", "Does arithmetic.", schema(a=integer, operation=operation, b=integer), strict=True)
    answer = await ask(client, "What is 7 plus 5?", (WEATHER, calculate))
    assert called(answer) == [("calculate", {"a": 7, "operation": "plus", "b": 5})]


async def test_tools_that_do_not_fit_leave_the_answer_unchanged(client: hedgerow.AsyncClient) -> None:
    for question in ("What is 7 plus 5?", "What is the opposite of hot?", "Spell the word river."):
        answer = await ask(client, question)
        assert (answer.tool_calls, answer.finish_reason) == ((), "stop")
        assert answer.text == (await ask(client, question, ())).text
    assert (await ask(client, "What is the capital of Kenya?", (WEATHER,))).text == "The capital of Kenya is Nairobi."


async def test_two_things_are_two_calls_and_their_results_two_sentences(client: hedgerow.AsyncClient) -> None:
    answer = await ask(client, OSLO_ROME)
    assert called(answer) == [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Rome"})]
    oslo, rome = answer.tool_calls
    turns = [
        Message("user", OSLO_ROME),
        Message("assistant", tool_calls=answer.tool_calls),
        Message("tool", "snowy", tool_call_id=oslo.id),
        Message("tool", '{"weather": "sunny", "degrees": 21}', tool_call_id=rome.id),
    ]
    text = (await ask(client, turns)).text
    assert text == "The weather in Oslo is snowy. The weather in Rome is sunny with 21 degrees."


async def test_sequential_tool_calls_give_the_same_answer(client: hedgerow.AsyncClient) -> None:
    turns = [Message("user", OSLO_ROME)]
    for city, sky in (("Oslo", "snowy"), ("Rome", "sunny")):
        answer = await ask(client, turns, parallel_tool_calls=False)
        assert called(answer) == [("get_weather", {"city": city})]
        turns.append(Message("assistant", tool_calls=answer.tool_calls))
        turns.append(Message("tool", sky, tool_call_id=answer.tool_calls[0].id))
    assert (await ask(client, turns)).text == "The weather in Oslo is snowy. The weather in Rome is sunny."


async def test_the_smaller_model_has_learned_it_too(client: hedgerow.AsyncClient) -> None:
    for question, name in ((OSLO, "get_weather"), ("What time is it in Oslo?", "clock")):
        answer = await ask(client, question, model="demo-llm-draft")
        assert answer.model == "demo-llm-draft"
        assert called(answer) == [(name, {"city": "Oslo"})]


async def test_openais_client_streams_calls_and_goes_on_from_their_results(openai_client: AsyncOpenAI) -> None:
    tools: Any = [
        {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.parameters}}
        for t in TOOLS
    ]
    messages: list[Any] = [{"role": "user", "content": OSLO_ROME}]
    asked: Any = {"model": "quality", "tools": tools, "temperature": 0}
    deltas = 0
    async with openai_client.chat.completions.stream(messages=messages, **asked) as stream:
        async for event in stream:
            deltas += event.type == "tool_calls.function.arguments.delta"
        (choice,) = (await stream.get_final_completion()).choices
    assert choice.finish_reason == "tool_calls"
    calls = choice.message.tool_calls
    assert calls is not None
    assert [json.loads(call.function.arguments) for call in calls] == [{"city": "Oslo"}, {"city": "Rome"}]
    assert deltas > len(calls)
    results = [{"role": "tool", "tool_call_id": call.id, "content": "windy"} for call in calls]
    said: Any = choice.message.model_dump(include={"role", "content", "tool_calls"})
    whole = await openai_client.chat.completions.create(messages=[*messages, said, *results], **asked)
    assert whole.choices[0].message.content == "The weather in Oslo is windy. The weather in Rome is windy."


async def test_the_command_shows_the_calls(up: Up, tmp_path: Path) -> None:
    file = tmp_path / "clock.json"
    file.write_text(json.dumps({"name": CLOCK.name, "description": CLOCK.description, "parameters": CLOCK.parameters}))
    gateway = ("--gateway", up.target)
    code, out, _ = await run("ask", "What time is it in Oslo?", "--tool", str(file), "--json", *gateway)
    answer = json.loads(out)
    assert (code, answer["finish_reason"]) == (0, "tool_calls")
    (call,) = answer["tool_calls"]
    assert (call["name"], json.loads(call["arguments"])) == ("clock", {"city": "Oslo"})
