"""instructor, in each of its modes for a provider of OpenAI's APIs and of Anthropic's."""

from __future__ import annotations

from typing import Any

import instructor
from anthropic import Anthropic
from checks import City, tell_each
from instructor import Mode
from openai import OpenAI

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "  Weather in Tokyo?\t"}]
MODES = (Mode.TOOLS, Mode.TOOLS_STRICT, Mode.JSON, Mode.JSON_SCHEMA, Mode.MD_JSON)


def check(client: Any, **asked: Any) -> dict[str, Any]:
    asked = {"messages": MESSAGES, "response_model": City, "max_retries": 0, **asked}
    city, raw = client.create_with_completion(**asked)
    return {
        "create": [city.city, raw.usage.model_dump(mode="json", exclude_none=True)],
        "partial": [each.city for each in client.create_partial(**asked)][-1],
    }


def chat(url: str, mode: Mode, model: str = "gpt") -> dict[str, Any]:
    client = OpenAI(base_url=url, api_key="any", max_retries=0)
    return check(instructor.from_openai(client, mode=mode), model=model)


def messages(url: str, mode: Mode) -> dict[str, Any]:
    client = Anthropic(base_url=url.removesuffix("/v1"), api_key="any", max_retries=0)
    return check(instructor.from_anthropic(client, mode=mode), model="claude", max_tokens=400)


def openai_chat(url: str) -> Any:
    return {mode.name: chat(url, mode) for mode in MODES}


def openai_responses(url: str) -> Any:
    return chat(url, Mode.RESPONSES_TOOLS, "resp")


def anthropic(url: str) -> Any:
    return {mode.name: messages(url, mode) for mode in (Mode.ANTHROPIC_TOOLS, Mode.ANTHROPIC_JSON)}


tell_each(openai_chat, openai_responses, anthropic)
