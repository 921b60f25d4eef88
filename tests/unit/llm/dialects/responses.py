"""Questions to a provider of OpenAI's Responses."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from services.llm.engine import Chunk, Message, Original, Request
from tests.recorded_response import Event
from tests.unit.llm.providers import asking
from tests.unit.llm.providers.simulated_provider import SimulatedProvider

HELLO = (Message("user", "Hello."),)
ALONE, BOTH = ("responses",), ("chat_completions", "responses")


@cache
def makers(name: str) -> TypeAdapter[Any]:
    """A type of the maker's own client, whose import takes two seconds."""
    from openai.types import responses

    return TypeAdapter(getattr(responses, name))


def sent(events: Iterable[Event]) -> SimulatedProvider:
    return SimulatedProvider(tuple(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events))


def words(api: str = "responses", untranslated: dict[str, str] | None = None, **body: Any) -> Original:
    return Original(api, json.dumps({"model": "m", **body}).encode(), untranslated=untranslated or {})


async def answer(
    provider: SimulatedProvider, request: Request, apis: tuple[str, ...] = ALONE, **own: Any
) -> list[Chunk]:
    return await asking.answer(provider, request, apis=apis, **own)
