"""openai-agents, which runs the loop of tool calls itself: by chat completions and by Responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from checks import BASE_URL, PICTURE, QUESTION, City, tell
from openai import AsyncOpenAI

set_tracing_disabled(True)


@function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


def agent(api: Any, **options: Any) -> Agent:
    client = AsyncOpenAI(base_url=BASE_URL, api_key="any", max_retries=0)
    return Agent(name="guide", instructions="Be brief.", model=api(model="m", openai_client=client), **options)


def asked(question: Any, make_agent: Callable[[], Agent]) -> Any:
    async def ask() -> Any:
        return (await Runner.run(make_agent(), question)).final_output

    return asyncio.run(ask())


def streamed(api: Any) -> Any:
    async def ask() -> Any:
        run = Runner.run_streamed(agent(api, tools=[weather]), "How is the weather?")
        kinds = [event.name async for event in run.stream_events() if event.type == "run_item_stream_event"]
        return [run.final_output, kinds]

    return asyncio.run(ask())


def check(api: Any) -> Any:
    shown = {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PICTURE}"}
    picture = [{"role": "user", "content": [{"type": "input_text", "text": "?"}, shown]}]
    return {
        "whole": asked(QUESTION, lambda: agent(api)),
        "tools": asked("How is the weather?", lambda: agent(api, tools=[weather])),
        "streamed": streamed(api),
        "schema": asked(QUESTION, lambda: agent(api, output_type=City)).city,
        "picture": asked(picture, lambda: agent(api)),
    }


def continued(api: Any) -> Any:
    """A second question by the id of the first one's response alone, with a tool's result before it."""

    async def ask() -> Any:
        first = await Runner.run(agent(api, tools=[weather]), "How is the weather?", auto_previous_response_id=True)
        second = await Runner.run(agent(api), QUESTION, previous_response_id=first.last_response_id)
        return [first.final_output, second.final_output]

    return asyncio.run(ask())


def chat() -> Any:
    return check(OpenAIChatCompletionsModel)


def responses() -> Any:
    return check(OpenAIResponsesModel)


def stored() -> Any:
    return continued(OpenAIResponsesModel)


tell(chat, responses, stored)
