"""pydantic-ai-slim, with a provider of each API."""

from __future__ import annotations

import asyncio
from typing import Any

from checks import City, tell_each
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

QUESTION = "  Weather in Tokyo?\t"


def weather(city: str) -> str:
    """The weather in a city."""
    return "21 °C,  晴れ\n"


def agent(model: Any, **options: Any) -> Agent[None, Any]:
    return Agent(model, instructions="Be brief.", retries=0, **options)


def said(run: Any) -> list[Any]:
    usage = run.usage
    return [str(run.output), usage.input_tokens, usage.cache_read_tokens, usage.output_tokens, usage.requests]


async def streamed(built: Agent[None, Any]) -> list[Any]:
    async with built.run_stream(QUESTION) as run:
        texts = [text async for text in run.stream_text(delta=True, debounce_by=None)]
        return ["".join(texts), run.usage.output_tokens]


async def formed(built: Agent[None, Any]) -> str:
    async with built.run_stream(QUESTION) as run:
        return str(await run.get_output())


async def check(model: Any) -> dict[str, Any]:
    forms = {"tool": ToolOutput(City), "prompted": PromptedOutput(City), "native": NativeOutput(City)}
    able = agent(model, tools=[weather])
    first = await able.run(QUESTION)
    return {
        "run": said(await agent(model).run(QUESTION)),
        "run_stream": await streamed(agent(model)),
        "tools": said(first),
        "goes_on": said(await able.run("And now?", message_history=first.all_messages())),
        "tools_streamed": await streamed(able),
        "tools_and_output": said(await agent(model, tools=[weather], output_type=City).run(QUESTION)),
        **{name: said(await agent(model, output_type=form).run(QUESTION)) for name, form in forms.items()},
        **{f"{name}_streamed": await formed(agent(model, output_type=form)) for name, form in forms.items()},
    }


def openai_chat(url: str) -> Any:
    provider = OpenAIProvider(base_url=url, api_key="any")
    return asyncio.run(check(OpenAIChatModel("gpt", provider=provider, settings={"temperature": 0.3, "seed": 7})))


def openai_responses(url: str) -> Any:
    provider = OpenAIProvider(base_url=url, api_key="any")
    settings = {"openai_reasoning_effort": "low", "openai_reasoning_summary": "auto", "openai_store": False}
    return asyncio.run(check(OpenAIResponsesModel("resp", provider=provider, settings=settings)))


def claude(url: str, **settings: Any) -> AnthropicModel:
    provider = AnthropicProvider(base_url=url.removesuffix("/v1"), api_key="any")
    able = {"supports_json_schema_output": True}  # which is known of models by their real names
    return AnthropicModel("claude", provider=provider, settings={"max_tokens": 4_000, **settings}, profile=able)


def anthropic(url: str) -> Any:
    return asyncio.run(check(claude(url)))


def anthropic_thinks(url: str) -> Any:
    """The model's signed thoughts are sent back, and the provider's cache keeps a part of the prompt."""
    kept = {"anthropic_cache_instructions": True, "anthropic_cache_tool_definitions": True}
    model = claude(url, anthropic_thinking={"type": "enabled", "budget_tokens": 2_048}, **kept)

    async def loop() -> Any:
        able = agent(model, tools=[weather])
        return [said(await able.run(QUESTION)), await streamed(able)]

    return asyncio.run(loop())


tell_each(openai_chat, openai_responses, anthropic, anthropic_thinks)
