"""Any server that speaks OpenAI's chat completions, behind the seam."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urljoin

from services.llm.config import LlmSettings
from services.llm.engine import Message, Original, Progress, Request, Tool
from services.llm.forwarding import asked_of_stream, forwarded
from services.llm.openai_answer import OpenAIAnswer
from services.llm.openai_wire import DIALECTS, GO_ON, to_body, to_messages, to_tools
from services.llm.provider_engine import LIMITS, ProviderEngine
from services.llm.transport.wire import Wire
from services.runtime.deadline import Deadline


class OpenAIEngine(ProviderEngine):
    """OpenAI's, or of a server like it."""

    def __init__(self, settings: LlmSettings, wire: Wire | None = None):
        own = self._own = settings.openai
        self._dialect = DIALECTS[own.dialect]
        super().__init__("openai", own, own.base_url.get_secret_value() or self._dialect.base_url, settings, wire)
        self._limit = own.max_tokens_field
        self._model = replace(self._model, continues=own.continues, api="chat_completions")

    async def count_tokens(self, messages: tuple[Message, ...], tools: tuple[Tool, ...], deadline: Deadline) -> int:
        """vLLM's servers count at `/tokenize`; the API itself has no such method."""
        url = urljoin(f"{self._url}/", "../tokenize")  # beside /v1, not below it
        body = {
            "model": self._own.model,
            "messages": to_messages(messages),
            **({"tools": to_tools(tools)} if tools else {}),
        }
        return await self._count(url, body, "count", deadline)

    def _headers(self) -> Mapping[str, str]:
        return {self._dialect.key_header: f"{self._dialect.key_prefix}{self._key}"} if self._key else {}

    def _body(self, request: Request, max_tokens: int | None) -> dict[str, Any]:
        return to_body(request, self._own.model, max_tokens, self._own.max_tokens_field, self._dialect.of_calls)

    def _forwarded(self, request: Request, own: Original) -> dict[str, Any]:
        """What is left of an answer that broke off is asked for as vLLM's servers have it."""
        body = self._capped(forwarded(request, own, lambda: self._translated(replace(request, prefix=""))))
        if request.prefix:
            body["messages"] = [*body["messages"], {"role": "assistant", "content": request.prefix}]
            body |= GO_ON
            if request.sampling.max_tokens:
                body = {name: given for name, given in body.items() if name not in LIMITS}
                body[self._limit] = request.sampling.max_tokens
        options = {**asked_of_stream(own), "include_usage": True}
        return {**body, "model": self._own.model, "stream": True, "stream_options": options}

    def _answer(self) -> OpenAIAnswer:
        return OpenAIAnswer()

    def _address(self, path: str) -> str:
        version = self._own.api_version
        query = f"?api-version={quote(version)}" if version else ""
        if path:
            return f"{self._url}/{path}{query}"
        below = self._dialect.versioned_path.format(model=quote(self._own.model, safe="")) if version else ""
        return f"{self._url}{below}/chat/completions{query}"


async def start(settings: LlmSettings, progress: Progress) -> OpenAIEngine:
    """See `engines.py`. There is nothing to load."""
    return OpenAIEngine(settings)
