"""A simulated provider that speaks OpenAI's chat completions over HTTP: no model, chosen latencies.

    HEDGEROW_PROVIDER_ADDRESS=127.0.0.1:8080 python -m bench.jagged.provider

Source: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from bench.jagged.engine import PROMPT_TOKENS, SimulatedEngine
from bench.jagged.latency import ARTICLES, ARTICLES_TOKENS, Profile
from bench.jagged.tally import TallyCollector
from services.runtime.errors import Exhausted, ServiceError

MODEL = "jagged"
_WORD = "word "


class ProviderSettings(BaseSettings):
    """Settings of the simulated provider."""

    model_config = SettingsConfigDict(env_prefix="HEDGEROW_PROVIDER_", frozen=True, extra="forbid")

    address: str = Field("127.0.0.1:8080", description="Where to serve HTTP, host:port.")
    tokens: int = Field(ARTICLES_TOKENS, ge=1, le=100_000, description="Events of one token each in an answer.")
    profile: Profile = Field(ARTICLES, description="Latencies and faults, as JSON.")
    seed: int = Field(0, description="Makes the draws of the profile repeatable.")
    slots: int = Field(0, ge=0, description="Calls that run at once; more of them wait inside. 0: all run.")


class Provider:
    """The routes: `/v1/chat/completions`, `/v1/models`, and `/metrics` with its own counts."""

    def __init__(self, settings: ProviderSettings):
        self._tokens = settings.tokens
        self._engine = SimulatedEngine(settings.profile, settings.slots, settings.seed)
        self._registry = CollectorRegistry()
        self._registry.register(TallyCollector(self._engine.tally))

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/metrics", self.metrics)
        return app

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "bench"}]})

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"content-type": "text/plain"})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Streams or not, as asked. Refused calls get 429 with Retry-After, failed ones 503."""
        body = await request.json()
        most = int(body.get("max_tokens") or body.get("max_completion_tokens") or self._tokens)
        tokens = min(most, self._tokens)
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "cache-control": "no-cache"})
        try:
            async with self._engine.call():
                if not body.get("stream"):
                    return await self._whole(tokens)
                with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
                async with aclosing(self._events(tokens, with_usage)) as events:
                    async for event in events:
                        if not response.prepared:  # its status is that of the first token
                            await response.prepare(request)
                        await response.write(event)
        except ServiceError as error:
            if not response.prepared:
                return _refusal(error)
            if request.transport:  # as a provider that dies in mid-answer
                request.transport.abort()
        return response

    async def _whole(self, tokens: int) -> web.Response:
        for due in self._engine.schedule(tokens):
            await self._engine.until(due)
        message = {"role": "assistant", "content": _WORD * tokens}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response(
            {"object": "chat.completion", "model": MODEL, "choices": [choice], "usage": _usage(tokens)}
        )

    async def _events(self, tokens: int, with_usage: bool) -> AsyncGenerator[bytes, None]:
        for number, due in enumerate(self._engine.schedule(tokens), 1):
            await self._engine.until(due)
            reason = "stop" if number == tokens else None
            yield _event([{"index": 0, "delta": {"content": _WORD}, "finish_reason": reason}])
        if with_usage:
            yield _event([], _usage(tokens))
        yield b"data: [DONE]\n\n"


def _event(choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> bytes:
    chunk = {"object": "chat.completion.chunk", "model": MODEL, "choices": choices, "usage": usage}
    return f"data: {json.dumps(chunk)}\n\n".encode()


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": tokens, "total_tokens": PROMPT_TOKENS + tokens}


def _refusal(error: ServiceError) -> web.Response:
    body = {"error": {"message": error.message, "type": error.reason.lower(), "code": error.reason.lower()}}
    if not isinstance(error, Exhausted):
        return web.json_response(body, status=503)
    # In whole seconds, as HTTP has it.
    retry_after = str(math.ceil(error.retry_delay_s or 0))
    return web.json_response(body, status=429, headers={"retry-after": retry_after})


def main() -> None:
    """Serve until SIGTERM. A client that leaves ends its answer."""
    settings = ProviderSettings()
    host, _, port = settings.address.rpartition(":")
    app = Provider(settings).application()
    web.run_app(app, host=host, port=int(port), handler_cancellation=True, print=None, access_log=None)


if __name__ == "__main__":
    main()
