"""A simulated provider that speaks OpenAI's chat completions and does not care for `response_format`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


class CarelessProvider:
    """Says `answers` one after the other, the last again and again, each with its finish reason. Notes what it was
    asked."""

    def __init__(self) -> None:
        self.answers: Sequence[tuple[str, str]] = [("It is five.", "stop")]
        self.asked: list[dict[str, Any]] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        text, finish = self.answers[min(len(self.asked), len(self.answers)) - 1]
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        half = len(text) // 2
        for delta, reason in (({"content": text[:half]}, None), ({"content": text[half:]}, None), ({}, finish)):
            await _send(response, {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
        await _send(response, {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}})
        await response.write(b"data: [DONE]\n\n")
        return response

    def says(self, *answers: tuple[str, str]) -> None:
        """From now on."""
        self.answers, self.asked = answers, []


async def _send(response: web.StreamResponse, chunk: dict[str, Any]) -> None:
    event = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "careless", **chunk}
    await response.write(f"data: {json.dumps(event)}\n\n".encode())


@asynccontextmanager
async def careless_provider() -> AsyncIterator[CarelessProvider]:
    """On a free loopback port; its `url` says which."""
    provider, app = CarelessProvider(), web.Application()
    app.router.add_post("/v1/chat/completions", provider.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    provider.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield provider
    finally:
        await runner.cleanup()
