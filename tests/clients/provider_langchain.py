"""langchain-openai and langchain-anthropic, each with a provider of its API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from checks import City, tell_each
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

QUESTION = "  Weather in Tokyo?\t"
CACHED = {"cache_control": {"type": "ephemeral"}}


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return "21 °C,  晴れ\n"


def gpt(url: str, **options: Any) -> ChatOpenAI:
    given = {"model": "gpt", "base_url": url, "api_key": "any", "max_retries": 0, "stream_usage": True}
    return ChatOpenAI(**{**given, "temperature": 0.3, "seed": 7, "max_completion_tokens": 99, **options})


def resp(url: str) -> ChatOpenAI:
    kept = {"store": False, "include": ["reasoning.encrypted_content"]}
    more = {"use_responses_api": True, "reasoning": {"effort": "low", "summary": "auto"}, "seed": None}
    return gpt(url, model="resp", temperature=None, **more, **kept)


def claude(url: str, **options: Any) -> ChatAnthropic:
    given = {"model": "claude", "base_url": url.removesuffix("/v1"), "api_key": "any", "max_retries": 0}
    return ChatAnthropic(**given, max_tokens=4_000, **options)


def said(answer: AIMessage) -> list[Any]:
    return [answer.content, answer.tool_calls, answer.usage_metadata]


def streamed(model: Any, asked: Any) -> AIMessage:
    first, *rest = model.stream(asked)
    for chunk in rest:
        first += chunk
    return first


def loop(model: Any, ask: Any) -> Iterator[Any]:
    """Until no tool is called."""
    able = model.bind_tools([weather])
    history: list[Any] = [SystemMessage("Be brief."), HumanMessage(QUESTION)]
    while True:
        answer = ask(able, history)
        yield said(answer)
        history.append(answer)
        if not answer.tool_calls:
            return
        history += [ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"]) for call in answer.tool_calls]


def check(model: Any, *forms: str) -> dict[str, Any]:
    return {
        "invoke": said(model.invoke(QUESTION)),
        "stream": said(streamed(model, QUESTION)),
        "loop": [*loop(model, lambda able, history: able.invoke(history))],
        "loop_streamed": [*loop(model, streamed)],
        **{form: model.with_structured_output(City, method=form).invoke(QUESTION).city for form in forms},
    }


def openai_chat(url: str) -> Any:
    return check(gpt(url), "json_schema", "function_calling", "json_mode")


def openai_responses(url: str) -> Any:
    return check(resp(url), "json_schema", "function_calling")


def anthropic(url: str) -> Any:
    return check(claude(url), "json_schema", "function_calling")


def anthropic_thinks(url: str) -> Any:
    """The model's signed thoughts are sent back, and the provider's cache keeps a part of the prompt."""
    model = claude(url, thinking={"type": "enabled", "budget_tokens": 2_048})
    system = SystemMessage([{"type": "text", "text": "Be brief.\n" * 40, **CACHED}])
    return [check(model), said(model.invoke([system, HumanMessage([{"type": "text", "text": QUESTION, **CACHED}])]))]


tell_each(openai_chat, openai_responses, anthropic, anthropic_thinks)
