"""A provider of all three APIs that records what it is asked, and answers with events as the real ones have them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.recorded_response import RESPONSE

Events = Sequence[Mapping[str, Any]]
_SAME = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1_750_000_000, "model": "gpt-x-2026-01-01"}
CONTEXT = 2_000_000  # tokens, of `gpt-x`
# With fields that the gateway's own contract does not have.
CHAT: Events = (
    {**_SAME, "system_fingerprint": "fp_1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
    {**_SAME, "choices": [{"index": 0, "delta": {"content": "Tok"}}], "obfuscation": "x1"},
    {**_SAME, "choices": [{"index": 0, "delta": {"content": "yo.", "annotations": [{"type": "url_citation"}]}}]},
    {**_SAME, "service_tier": "default", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {
        **_SAME,
        "choices": [],
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 2,
            "total_tokens": 11,
            "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
        },
    },
)
_START = {
    "id": "msg_7",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 9, "cache_read_input_tokens": 4, "output_tokens": 1},
}
MESSAGE: Events = (
    {"type": "message_start", "message": _START},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Japan, so"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2lnbmVk"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "ping"},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Tok"}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "yo."}},
    {"type": "content_block_stop", "index": 1},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 12, "service_tier": "standard"},
    },
    {"type": "message_stop"},
)


@dataclass(frozen=True)
class Asked:
    """One request. `headers`: names in lower case."""

    path: str
    body: dict[str, Any]
    headers: Mapping[str, str]


@dataclass
class RecordingProvider:
    """`asked` has the requests, oldest first. `error`: a status and a body, in place of every answer; `turns`: answers
    to come first, the next one last; `says`: what each request by its path is answered, whole or in events; `opens`: no
    answer begins before it is set."""

    url: str = ""
    chat: Events = CHAT
    message: Events = MESSAGE
    response: Events = RESPONSE
    error: tuple[int, Mapping[str, Any]] | None = None
    asked: list[Asked] = field(default_factory=list)
    turns: list[Events] = field(default_factory=list)
    says: Callable[[str, Mapping[str, Any]], Mapping[str, Any] | Events] | None = None
    opens: asyncio.Event | None = None

    def reset(self) -> None:
        """As new."""
        self.asked.clear()
        self.turns.clear()
        self.chat, self.message, self.response = CHAT, MESSAGE, RESPONSE
        self.error = self.says = self.opens = None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Record, and stream, or answer in one piece where `says` does."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.asked.append(Asked(request.path, json.loads(await request.read()), headers))
        if self.opens:
            await self.opens.wait()
        if self.error:
            return web.json_response(self.error[1], status=self.error[0])
        events = self.says(request.path, self.asked[-1].body) if self.says else self._events()
        if isinstance(events, Mapping):
            return web.json_response(events)
        reply = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await reply.prepare(request)
        method = request.path.rpartition("/")[2]
        for event in events:
            name = f"event: {event['type']}\n" if "type" in event else ""
            await reply.write(f"{name}data: {json.dumps(event, separators=(',', ':'))}\n\n".encode())
        if method == "completions":
            await reply.write(b"data: [DONE]\n\n")
        return reply

    def _events(self) -> Events:
        """The events of the next turn, or the default ones."""
        if self.turns:
            return self.turns.pop()
        asked = self.asked[-1]
        usual = {"messages": self.message, "responses": self.response}.get(asked.path.rpartition("/")[2], self.chat)
        return _in_form(usual, asked.body)


@asynccontextmanager
async def recording_provider() -> AsyncIterator[RecordingProvider]:
    """It serves on loopback; its APIs are at `url`."""
    provider = RecordingProvider()
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/chat/completions", provider.answer)
    app.router.add_post("/v1/messages", provider.answer)
    app.router.add_post("/v1/responses", provider.answer)
    for method in ("embeddings", "rerank", "moderations"):
        app.router.add_post(f"/v1/{method}", provider.answer)
    app.router.add_get("/v1/models", _models)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    provider.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield provider
    finally:
        await runner.cleanup()


async def _models(request: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": "gpt-x", "max_model_len": CONTEXT}]})


def _in_form(events: Events, body: Mapping[str, Any]) -> Events:
    """The events, with another text where the answer has to match something."""
    form = body.get("response_format") or (body.get("output_config") or body.get("text") or {}).get("format")
    said = "yes" if "structured_outputs" in body else '{"city": "Tokyo"}' if form and form["type"] != "text" else ""
    if not said:
        return events
    encoded = json.dumps(events).replace('"Tok"', json.dumps(said)).replace('"yo."', '""')
    encoded = encoded.replace('"Tokyo."', json.dumps(said))
    changed: Events = json.loads(encoded)
    return changed
