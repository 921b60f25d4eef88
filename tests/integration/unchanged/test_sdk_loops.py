"""Loops with tools by the makers' own clients: through the gateway, the provider is asked and the client answered as
they are without it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from tests.answering_provider import SIGNATURE, TEXT, answered
from tests.integration.unchanged.transparent import Transparent

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
RESULT = "21 °C,  晴れ\n"
QUESTION = "  Weather in Tokyo?\t"
CACHED = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
ASKED: dict[str, Any] = {
    "model": "claude",
    "max_tokens": 4_000,
    "thinking": {"type": "enabled", "budget_tokens": 2_048},
    "system": [{"type": "text", "text": "Be brief.\n" * 40, **CACHED}],
    "tools": [{"name": "weather", "description": "Now.", "input_schema": CITY, **CACHED}],
}
CHAT: dict[str, Any] = {
    "model": "gpt",
    "reasoning_effort": "low",
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": CITY, "strict": True}}],
}


class Place(BaseModel):
    """The answer's form."""

    city: str


Loop = Callable[[str], Awaitable[Any]]


async def _both(served: Transparent, loop: Loop, path: str = "") -> tuple[Any, list[Any]]:
    """What a loop of two turns came to, and what the provider was asked: the same with the gateway and without it."""

    async def run(base_url: str) -> tuple[Any, list[Any]]:
        served.provider.reset()
        served.provider.says = answered
        came = await loop(f"{base_url}{path}")
        return came, [{**asked.body, "model": "…"} for asked in served.provider.asked]

    came, asked = await run(served.url)
    assert (came, asked) == await run(served.provider.url.removesuffix("/v1"))
    assert len(asked) == 2
    return came, asked


def _plain(answer: Any) -> Any:
    """An answer as JSON, without the account that the gateway puts beside it."""
    fields = json.loads(answer.model_dump_json(warnings=False))
    return {name: given for name, given in fields.items() if name != "hedgerow"}


def _anthropic(base_url: str) -> AsyncAnthropic:
    from anthropic import AsyncAnthropic

    return AsyncAnthropic(base_url=base_url, api_key="any", max_retries=0)


def _openai(base_url: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=base_url, api_key="any", max_retries=0)


async def _message_loop(ask: Callable[..., Awaitable[Any]]) -> list[Any]:
    """Both turns; the first one's blocks go back as they came."""
    history: list[Any] = [{"role": "user", "content": [{"type": "text", "text": QUESTION, **CACHED}]}]
    first = await ask(**ASKED, messages=history)
    (use,) = (block for block in first.content if block.type == "tool_use")
    assert use.input == {"city": "Tokyo"}
    result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": RESULT, **CACHED}]}
    history += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    return [_plain(first), _plain(await ask(**ASKED, messages=history))]


async def test_anthropics_client_streams_thoughts_that_go_back_signed(served: Transparent) -> None:
    async def loop(base_url: str) -> Any:
        async with _anthropic(base_url) as client:

            async def ask(**asked: Any) -> Any:
                async with client.messages.stream(**asked) as stream:
                    kinds = [event.type async for event in stream]
                    assert kinds[-1] == "message_stop"
                    return await stream.get_final_message()

            return await _message_loop(ask)

    (first, second), (_, asked) = await _both(served, loop)
    thought = asked["messages"][1]["content"][0]
    assert thought == {"type": "thinking", "thinking": "Tokyo, so\n", "signature": SIGNATURE}
    assert asked["messages"][2]["content"][0]["content"] == [{"type": "text", "text": RESULT, **CACHED}]
    assert (asked["system"], asked["tools"], asked["thinking"]) == tuple(
        ASKED[name] for name in ("system", "tools", "thinking")
    )
    assert first["usage"]["cache_read_input_tokens"] == 2_048
    assert second["content"][-1]["text"] == TEXT


async def _chat_loop(ask: Callable[..., Awaitable[Any]]) -> list[Any]:
    history: list[Any] = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    first = await ask(**CHAT, messages=history)
    message = first.choices[0].message
    (call,) = message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Tokyo"}
    said = json.loads(message.model_dump_json(exclude_none=True, exclude={"parsed"}))
    history += [said, {"role": "tool", "tool_call_id": call.id, "content": RESULT}]
    return [_plain(first), _plain(await ask(**CHAT, messages=history))]


async def test_openais_client_streams_a_loop_and_reads_its_answer_in_a_form(served: Transparent) -> None:
    async def loop(base_url: str) -> Any:
        async with _openai(base_url) as client:

            async def ask(**asked: Any) -> Any:
                options = {"include_usage": True}
                async with client.chat.completions.stream(
                    **asked, response_format=Place, stream_options=options
                ) as stream:
                    async for _ in stream:
                        pass
                    return await stream.get_final_completion()

            return await _chat_loop(ask)

    (first, second), (asked, again) = await _both(served, loop, "/v1")
    assert asked["reasoning_effort"] == again["reasoning_effort"] == "low"
    assert again["messages"][-1] == {"role": "tool", "tool_call_id": "call_weather", "content": RESULT}
    assert second["choices"][0]["message"]["parsed"] == {"city": "Tokyo"}
    assert first["usage"]["completion_tokens_details"]["reasoning_tokens"] == 20
