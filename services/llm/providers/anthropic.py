"""Anthropic's Messages API, and servers that speak it, behind the seam."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any

from services.llm.config import LlmSettings
from services.llm.dialects import chat_as_messages, documents
from services.llm.dialects.anthropic_answer import AnthropicAnswer
from services.llm.dialects.anthropic_request import HAS_NOT, to_body, to_conversation, to_tools, with_form_in_words
from services.llm.dialects.counterparts import EFFORTS
from services.llm.dialects.forwarding import conversation, forwarded
from services.llm.engine import Chunk, Feature, Message, Original, Progress, Request, Tool
from services.llm.providers.engine import ProviderEngine
from services.llm.providers.second_attempt import without_foreign_thoughts, without_thinking
from services.llm.providers.transport.wire import Wire
from services.llm.size import size
from services.runtime.deadline import Deadline

_BASE_URL = "https://api.anthropic.com/v1"
_USUAL_MAX_TOKENS = 4_096  # the API asks for a number
_VERSION = "2023-06-01"


class AnthropicEngine(ProviderEngine):
    """Anthropic's, or of a server like it."""

    def __init__(self, settings: LlmSettings, wire: Wire | None = None):
        own = self._own = settings.anthropic
        super().__init__("anthropic", own, own.base_url.get_secret_value() or _BASE_URL, settings, wire)
        sees = Feature.IMAGES in own.features

        def translates(original: Original, place: str, given: str) -> bool:
            if chat_as_messages.takes(original, place, given, sees=sees):
                return True
            return documents.takes(original, place, given, "messages", sees=sees)

        self._model = replace(
            self._model, apis=frozenset({"messages"}), lacks=frozenset(HAS_NOT), takes=EFFORTS, translates=translates
        )
        self._usual = min(_USUAL_MAX_TOKENS, own.context_tokens // 2 or _USUAL_MAX_TOKENS)
        self._model = replace(self._model, usual_max_tokens=self._usual)

    def generate(self, request: Request, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
        return without_foreign_thoughts(super().generate, request, deadline)

    async def count_tokens(self, messages: tuple[Message, ...], tools: tuple[Tool, ...], deadline: Deadline) -> int:
        url = self._address("messages/count_tokens")

        def body() -> dict[str, Any]:
            return to_conversation(messages, self._own.model) | ({"tools": to_tools(tools)} if tools else {})

        return await self._count(url, size(messages, tools), body, "input_tokens", deadline)

    def _headers(self) -> Mapping[str, str]:
        return {"anthropic-version": _VERSION, **({"x-api-key": self._key} if self._key else {})}

    def _body(self, request: Request, max_tokens: int | None) -> dict[str, Any]:
        own, asked = request.original, chat_as_messages.thinks(request.original)
        budget = (asked or self._own.thinking or {}).get("budget_tokens")
        usual = self._usual + (budget if isinstance(budget, int) else 0)  # thoughts count
        body = to_body(request, self._own.model, max_tokens or usual, self._own.thinking)
        body = chat_as_messages.with_own(body, own) if own and own.api == chat_as_messages.API else body
        return with_form_in_words(body, request.constraint)

    def _forwarded(self, request: Request, own: Original) -> dict[str, Any]:
        """The beginning of an answer is the caller's, and among the messages: this API goes on from no other."""
        translated: dict[str, Any] = {}

        def translate() -> dict[str, Any]:
            translated.update(self._translated(request))
            return translated

        body = self._capped(request, forwarded(request, own, translate))
        if body.get("messages") is translated.get("messages"):
            body = _of_changed(body, request)
        return {**body, "model": self._own.model, "stream": True}

    def _answer(self, request: Request) -> AnthropicAnswer:
        return AnthropicAnswer()

    def _address(self, path: str) -> str:
        return f"{self._url}/{path or 'messages'}"


def _of_changed(body: dict[str, Any], request: Request) -> dict[str, Any]:
    """The body with the answer's prefix, if a policy has changed the conversation before it; and without thinking in
    the middle of a turn, because such a conversation lacks the signed thoughts, and the API would refuse it."""
    if request.prefix:
        body = {**body, "messages": [*conversation(body), {"role": "assistant", "content": request.prefix}]}
    return without_thinking(body) if request.messages[-1].role == "tool" else body


async def start(settings: LlmSettings, progress: Progress) -> AnthropicEngine:
    """See `engines.py`. There is nothing to load."""
    return AnthropicEngine(settings)
