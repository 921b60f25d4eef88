"""A simulated OpenAI-compatible provider: answers with what a test tells it to, without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from services.llm.config import LlmSettings, OpenAISettings
from services.llm.openai_engine import OpenAIEngine

KEY = "sk-very-secret"


def event(text: str = "", finish_reason: str | None = None, usage: dict[str, Any] | None = None) -> str:
    """One chat.completion.chunk as a server-sent event."""
    choices = [{"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}]
    return f"data: {json.dumps({'choices': [] if usage else choices, 'usage': usage})}\n\n"


DONE = "data: [DONE]\n\n"
USAGE = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}


@dataclass
class SimulatedProvider:
    """`pieces` are sent one by one as the body; an exception among them breaks the connection there."""

    pieces: tuple[str | Exception, ...] = (event("Hello"), event(".", "stop"), event(usage=USAGE), DONE)
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    hold: asyncio.Event | None = None  # waited for before the last piece
    requests: list[httpx.Request] = field(default_factory=list)
    closed: bool = False

    def engine(self, *, continues: bool = False, **settings: Any) -> OpenAIEngine:
        """An engine connected to it."""
        own = OpenAISettings(
            base_url="http://provider.test/v1",
            model="big",
            api_key=KEY,  # type: ignore[arg-type]
            continues=continues,
        )
        return OpenAIEngine(LlmSettings(engine="openai", openai=own, **settings), httpx.MockTransport(self._answer))

    @property
    def body(self) -> dict[str, Any]:
        """What was posted last."""
        body: dict[str, Any] = json.loads(self.requests[-1].content)
        return body

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(self.status, headers=self.headers, content=self._body())

    async def _body(self) -> AsyncIterator[bytes]:
        try:
            for index, piece in enumerate(self.pieces):
                if self.hold and index == len(self.pieces) - 1:
                    await self.hold.wait()
                if isinstance(piece, Exception):
                    raise piece
                yield piece.encode()
        finally:
            self.closed = True
