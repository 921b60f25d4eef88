"""Anthropic's Messages API, and servers that speak it, behind the seam."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from services.llm.anthropic_answer import AnthropicAnswer
from services.llm.anthropic_wire import to_body, to_conversation, to_tools
from services.llm.config import LlmSettings
from services.llm.engine import Message, Original, Progress, Request, Tool
from services.llm.forwarding import forwarded
from services.llm.provider_engine import ProviderEngine
from services.llm.transport.wire import Wire
from services.runtime.deadline import Deadline

_BASE_URL = "https://api.anthropic.com/v1"
_USUAL_MAX_TOKENS = 4_096  # the API asks for a number
_VERSION = "2023-06-01"


class AnthropicEngine(ProviderEngine):
    """Anthropic's, or of a server like it."""

    def __init__(self, settings: LlmSettings, wire: Wire | None = None):
        own = self._own = settings.anthropic
        super().__init__("anthropic", own, own.base_url.get_secret_value() or _BASE_URL, settings, wire)
        self._model = replace(self._model, apis=frozenset({"messages"}))
        self._usual = min(_USUAL_MAX_TOKENS, own.context_tokens // 2 or _USUAL_MAX_TOKENS)

    async def count_tokens(self, messages: tuple[Message, ...], tools: tuple[Tool, ...], deadline: Deadline) -> int:
        body = to_conversation(messages, self._own.model) | ({"tools": to_tools(tools)} if tools else {})
        return await self._count(self._address("messages/count_tokens"), body, "input_tokens", deadline)

    def _headers(self) -> Mapping[str, str]:
        return {"anthropic-version": _VERSION, **({"x-api-key": self._key} if self._key else {})}

    def _body(self, request: Request, max_tokens: int | None) -> dict[str, Any]:
        return to_body(request, self._own.model, max_tokens or self._usual, self._own.thinking)

    def _forwarded(self, request: Request, own: Original) -> dict[str, Any]:
        """The beginning of an answer is the caller's, and among the messages: this API goes on from no other."""
        body = self._capped(forwarded(request, own, lambda: self._translated(request)))
        return {**body, "model": self._own.model, "stream": True}

    def _answer(self, request: Request) -> AnthropicAnswer:
        return AnthropicAnswer()

    def _address(self, path: str) -> str:
        return f"{self._url}/{path or 'messages'}"


async def start(settings: LlmSettings, progress: Progress) -> AnthropicEngine:
    """See `engines.py`. There is nothing to load."""
    return AnthropicEngine(settings)
