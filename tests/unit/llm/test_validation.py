"""Requests that are refused before an engine gets them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from services.llm.engine import Constraint, Message, Part, Request, Sampling, Tool, ToolCall, ToolChoice
from services.llm.validation import check
from services.runtime.errors import InvalidInput

HELLO = (Message("user", "Hello."),)
CALLED = (*HELLO, Message("assistant", tool_calls=(ToolCall("call_1", "weather", "{}"),)))
WEATHER = Tool("weather", parameters='{"type": "object"}')
DIGITS = Constraint("regex", "[0-9]+")
IMAGE = Part("image", data=b"png")


def asked(*messages: Message, **fields: Any) -> Request:
    return Request(messages or HELLO, **fields)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request(()), "messages: 1 or more, got 0"),
        (Request((Message("user", ""),)), "messages[0].content: 1 or more characters, got 0"),
        (
            Request((*HELLO, Message("assistant", "Hi."))),
            "messages[1].role: the last one is the user's, or a tool's, got assistant",
        ),
        (Request(HELLO, Sampling(temperature=-0.1)), "sampling.temperature: 0 to 2, got -0.1"),
        (Request(HELLO, Sampling(temperature=math.nan)), "sampling.temperature: 0 to 2, got nan"),
        (Request(HELLO, Sampling(top_p=0.0)), "sampling.top_p: above 0 to 1, got 0.0"),
        (Request(HELLO, Sampling(top_p=1.1)), "sampling.top_p: above 0 to 1, got 1.1"),
        (Request(HELLO, Sampling(max_tokens=0)), "sampling.max_tokens: 1 or more, got 0"),
        (Request(HELLO, Sampling(stop=("a",) * 65)), "sampling.stop: at most 64, got 65"),
        (Request(HELLO, Sampling(stop=("a", ""))), "sampling.stop[1]: 1 to 256 characters, got 0"),
        (Request(HELLO, Sampling(stop=("a" * 257,))), "sampling.stop[0]: 1 to 256 characters, got 257"),
        (
            Request(HELLO, constraint=Constraint("json_object"), prefix='{"a"'),
            "prefix: none together with response_format, got 4 characters",
        ),
        (asked(tools=(WEATHER,), prefix="Hi"), "prefix: none together with tools, got 2 characters"),
        (asked(tools=(WEATHER,) * 2), "tools[1].name: one tool of each name, got weather"),
        (asked(tools=(Tool("a b"),)), "tools[0].name: 1 to 128 letters, digits, _ and -, got 'a b'"),
        (asked(tools=(Tool("a", parameters="[]"),)), "tools[0].parameters: a JSON object, got list"),
        (asked(tools=(WEATHER,) * 513), "tools: at most 512, got 513"),
        (asked(tool_choice=ToolChoice("required")), "tool_choice.mode: no required without tools, got required"),
        (
            asked(tools=(WEATHER,), tool_choice=ToolChoice("named", "clock")),
            "tool_choice.name: one of weather, got clock",
        ),
        (
            asked(tools=(WEATHER,), tool_choice=ToolChoice("named", "weather"), constraint=DIGITS),
            "tool_choice: no required call together with a response_format, got weather",
        ),
        (
            asked(*CALLED, Message("tool", "rain", tool_call_id="call_2")),
            "messages[2].tool_call_id: the id of a call before it, got 'call_2'",
        ),
        (
            asked(Message("user", "Hi.", tool_calls=(ToolCall("a", "b", ""),))),
            "messages[0].tool_calls: only in messages of the assistant, got user",
        ),
        (
            asked(Message("assistant", tool_calls=(ToolCall("", "b", ""),)), *HELLO),
            "messages[0].tool_calls[0].id: 1 or more characters, got 0",
        ),
        (
            asked(Message("user", "Hi.", tool_call_id="a")),
            "messages[0].tool_call_id: only in messages of a tool, got a",
        ),
        (
            asked(Message("system", parts=(IMAGE,)), *HELLO),
            "messages[0].parts[0]: image only in messages of the user, got system",
        ),
        (asked(Message("user", parts=(Part("image"),))), "messages[0].parts[0].image: 1 or more bytes, got 0"),
        (asked(sampling=Sampling(presence_penalty=2.5)), "sampling.presence_penalty: -2 to 2, got 2.5"),
        (asked(sampling=Sampling(frequency_penalty=-3)), "sampling.frequency_penalty: -2 to 2, got -3"),
        (asked(sampling=Sampling(top_logprobs=21)), "sampling.top_logprobs: 0 to 20, got 21"),
        (asked(sampling=Sampling(logit_bias=((1, 0.0), (1, 1.0)))), "sampling.logit_bias[1].token: each once, got 1"),
        (asked(sampling=Sampling(logit_bias=((1, 101.0),))), "sampling.logit_bias[0].bias: -100 to 100, got 101.0"),
        (asked(sampling=Sampling(logit_bias=((-1, 1.0),))), "sampling.logit_bias[0].token: 0 or more, got -1"),
        (asked(sampling=Sampling(top_k=-2)), "sampling.top_k: 1 to 1000000, or 0 or -1 for all tokens, got -2"),
        (asked(sampling=Sampling(min_p=1.5)), "sampling.min_p: 0 to 1, got 1.5"),
        (asked(sampling=Sampling(repetition_penalty=0)), "sampling.repetition_penalty: above 0 to 2, got 0"),
        (asked(sampling=Sampling(min_tokens=9, max_tokens=8)), "sampling.min_tokens: 0 to max_tokens, got 9"),
        (asked(sampling=Sampling(stop_token_ids=(1,) * 65)), "sampling.stop_token_ids: at most 64, got 65"),
        (asked(sampling=Sampling(stop_token_ids=(1, -1))), "sampling.stop_token_ids[1]: 0 or more, got -1"),
    ],
)
def test_a_refusal_names_the_field_the_limit_and_the_value(request_: Request, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check(request_)
    assert caught.value.message == said


def test_a_forced_call_may_stand_beside_a_form_where_the_provider_gets_the_callers_own_words() -> None:
    check(asked(tools=(WEATHER,), tool_choice=ToolChoice("required"), constraint=DIGITS), forwarded=True)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0, 1, 1, ("a" * 64,) * 8, -1), Sampling(2, 1e-9)])
def test_the_limits_themselves_are_allowed(sampling: Sampling) -> None:
    check(Request(HELLO, sampling))
    check(Request(HELLO, sampling, prefix="Hi"))


@pytest.mark.parametrize(
    "request_",
    [
        asked(*CALLED, Message("tool", "", tool_call_id="call_1")),
        asked(*CALLED, *HELLO, Message("tool", "rain", tool_call_id="call_1")),
        asked(Message("user", parts=(IMAGE,))),
        asked(tools=(Tool("a" * 64),), tool_choice=ToolChoice("required"), parallel_tool_calls=False),
        asked(tools=(WEATHER,), constraint=DIGITS),
        asked(sampling=Sampling(logit_bias=((0, -100), (1, 100)), top_logprobs=20, presence_penalty=-2)),
        asked(sampling=Sampling(top_k=-1, min_p=1, repetition_penalty=2, min_tokens=8, max_tokens=8, ignore_eos=True)),
    ],
)
def test_conversations_with_tools_and_pictures_are_allowed(request_: Request) -> None:
    check(request_)
