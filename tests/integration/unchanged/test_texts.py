"""A caller's text reaches the provider character by character, by HTTP in the caller's words and by gRPC in those of
the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

import hedgerow
from tests.integration.unchanged.shapes import TEXTS
from tests.integration.unchanged.transparent import Transparent

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]
MORE: Mapping[str, str] = {
    **TEXTS,
    "no-break and zero-width": "\u00a0a\u200bb\u200cc\u200dd\ufeff e\u2060f\u00ad\u3000",
    "direction marks": "\u202eabc\u202c \u2066שלום\u2069 \u061c",
    "devanagari": "क्षत्रिय हिन्दी में नमस्ते",
    "thai and korean": "สวัสดี 안녕하세요",
    "joined emoji": "🧑🏽‍🚀 🏳️‍🌈 🇯🇵 ❤️‍🔥",
    "stacked marks": "z\u0351\u036b\u0343\u036a\u0302\u036b a\u0308\u0323",
    "beyond the first plane": "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \U0010fffd",
    "tabs and line ends": "\t\ta\r\n\r\n\tb\r\n",
    "tags": "<|im_start|>system\nhi<|im_end|> [INST] </s>",
    "template": "{{ system }} {% raw %} ${x} %s {0}",
    "escapes": "\\n \\u0041 \\\\ \"quoted\" 'x' `y`",
}
CITY = {"type": "object", "properties": {"city": {"type": "string", "description": " 市  \t"}}, "required": ["city"]}
_ROLES = st.sampled_from(["user", "assistant", "system"])
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
CONVERSATIONS = st.lists(st.tuples(_ROLES, _TEXT), max_size=6).flatmap(
    lambda turns: _TEXT.map(lambda last: [*turns, ("user", last)])
)


@pytest_asyncio.fixture(loop_scope="session")
async def client(served: Transparent) -> AsyncIterator[hedgerow.AsyncClient]:
    served.provider.reset()
    async with hedgerow.AsyncClient(served.target) as connected:
        yield connected


def _asked(served: Transparent) -> Any:
    """The last request to the provider."""
    return served.provider.asked[-1].body


@pytest.mark.parametrize("text", MORE.values(), ids=list(MORE))
async def test_a_text_by_grpc_arrives_in_every_role(
    served: Transparent, client: hedgerow.AsyncClient, text: str
) -> None:
    turns = [hedgerow.Message("system", text), hedgerow.Message("user", text), hedgerow.Message("assistant", text)]
    await client.ask([*turns, hedgerow.Message("user", text)], model="gpt")
    assert _asked(served)["messages"] == [
        {"role": role, "content": text} for role in ("system", "user", "assistant", "user")
    ]
    await client.ask([*turns, hedgerow.Message("user", text)], model="claude")
    block = [{"type": "text", "text": text}]
    assert _asked(served)["system"] == block
    assert _asked(served)["messages"] == [{"role": role, "content": block} for role in ("user", "assistant", "user")]


async def test_all_that_the_contract_has_arrives_by_grpc(served: Transparent, client: hedgerow.AsyncClient) -> None:
    call = hedgerow.ToolCall("call_1", "weather", '{"city":  "東京"}')
    turns = [
        hedgerow.Message("user", "  Weather?\t"),
        hedgerow.Message("assistant", tool_calls=[call]),
        hedgerow.Message("tool", '{"c": 21.50}\r\n', tool_call_id="call_1"),
        hedgerow.Message("user", "And?"),
    ]
    await client.ask(
        turns,
        model="gpt",
        tools=[hedgerow.Tool("weather", "The weather  now.\n", CITY, strict=True)],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0.3,
        top_p=0.95,
        max_tokens=777,
        stop=["\n\n", " END"],
        seed=2**40 + 1,
        frequency_penalty=-0.7,
        presence_penalty=0.1,
        logit_bias={7: -1.5},
        top_logprobs=2,
    )
    asked = _asked(served)
    function = {"name": "weather", "arguments": '{"city":  "東京"}'}
    called = {"id": "call_1", "type": "function", "function": function}
    assert asked.pop("messages") == [
        {"role": "user", "content": "  Weather?\t"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [called],
        },
        {"role": "tool", "content": '{"c": 21.50}\r\n', "tool_call_id": "call_1"},
        {"role": "user", "content": "And?"},
    ]
    tool = {"name": "weather", "description": "The weather  now.\n", "parameters": CITY, "strict": True}
    assert asked.pop("tools") == [{"type": "function", "function": tool}]
    assert asked == {
        "model": "gpt-x",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "temperature": 0.3,
        "top_p": 0.95,
        "max_tokens": 777,
        "stop": ["\n\n", " END"],
        "seed": 2**40 + 1,
        "frequency_penalty": -0.7,
        "presence_penalty": 0.1,
        "logit_bias": {"7": -1.5},
        "logprobs": True,
        "top_logprobs": 2,
    }


@given(turns=CONVERSATIONS)
@settings(max_examples=60)
async def test_any_conversation_arrives(served: Transparent, turns: list[tuple[str, str]]) -> None:
    """By HTTP and by gRPC."""
    served.provider.reset()
    messages = [{"role": role, "content": text} for role, text in turns]
    async with httpx.AsyncClient(base_url=served.url, timeout=20) as http:
        reply = await http.post("/v1/chat/completions", json={"model": "gpt", "messages": messages})
    assert reply.status_code == 200, reply.text
    assert _asked(served)["messages"] == messages
    async with hedgerow.AsyncClient(served.target) as client:
        await client.ask([hedgerow.Message(role, text) for role, text in turns], model="gpt")
    assert _asked(served)["messages"] == messages
    assert len(served.provider.asked) == 2
