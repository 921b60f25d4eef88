"""Questions to the engine for OpenAI-compatible servers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.llm.engine import Chunk, Message, Original, Request
from services.llm.providers.openai import OpenAIEngine
from services.runtime.deadline import Deadline
from services.runtime.errors import ServiceError
from tests.unit.llm.providers.simulated_provider import KEY, SimulatedProvider

HELLO = (Message("system", "Be brief."), Message("user", "Hello."))


async def answer(provider: SimulatedProvider, request: Request | None = None, **own: Any) -> list[Chunk]:
    """`own` are further settings of the engine's kind."""
    return await answer_of(provider.engine(own=own), request or Request(HELLO))


async def answer_of(engine: OpenAIEngine, request: Request) -> list[Chunk]:
    return [chunk async for chunk in engine.generate(request, Deadline.never())]


async def refusal(provider: SimulatedProvider, deadline: Deadline | None = None) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        async for _ in provider.engine().generate(Request(HELLO), deadline or Deadline.never()):
            pass
    assert KEY not in str(caught.value.message) + str(caught.value.metadata)
    return caught.value


def chat(**body: Any) -> Original:
    """A request in its caller's own words."""
    return Original("chat_completions", json.dumps(body).encode())


def refusing(status: int, body: object = "", **headers: str) -> SimulatedProvider:
    return SimulatedProvider((json.dumps(body),), status, headers)
