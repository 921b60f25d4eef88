"""Any server that speaks OpenAI's chat completions or Responses, behind the seam."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from services.llm.answer import Answer
from services.llm.config import LlmSettings
from services.llm.dialects import documents, responses_request
from services.llm.dialects.counterparts import OPENAIS
from services.llm.dialects.forwarding import conversation, encode, forwarded, forwarded_response
from services.llm.dialects.openai_answer import OpenAIAnswer
from services.llm.dialects.openai_request import DIALECTS, GO_ON, to_body, to_messages, to_tools
from services.llm.dialects.responses_answer import ResponsesAnswer
from services.llm.engine import Chunk, Feature, Message, Original, Progress, Request, Tool
from services.llm.errors import RequestRefused
from services.llm.providers import methods
from services.llm.providers.config import OpenAIApi
from services.llm.providers.engine import LIMITS, ProviderEngine, with_extra
from services.llm.providers.errors import to_error
from services.llm.providers.extra_fields import ExtraFields
from services.llm.providers.second_attempt import Generate, repeated, with_other_ids, without_foreign_thoughts
from services.llm.providers.transport.wire import Wire
from services.llm.size import size
from services.runtime.aside import aside, size_in
from services.runtime.deadline import Deadline
from services.runtime.errors import NotSupported

_HOST = "api.openai.com"
_USAGE = ("stream_options", "include_usage")  # the field and its option that ask for the usage of a stream
_OF_ALL_MODELS = ("models", "responses")  # paths that name no deployment
_REASONS = re.compile(r"(o\d|gpt-([5-9]|\d\d))", re.IGNORECASE)  # families of models that refuse `max_tokens`


class OpenAIEngine(ProviderEngine):
    """OpenAI's, or of a server like it."""

    def __init__(self, settings: LlmSettings, wire: Wire | None = None):
        own = self._own = settings.openai
        self._dialect = DIALECTS[own.dialect]
        super().__init__("openai", own, own.base_url.get_secret_value() or self._dialect.base_url, settings, wire)
        self._limit = own.max_tokens_field or _usual_limit(self._url, own.dialect, own.model)
        self._apis = own.apis or _usual_apis(self._url)
        lacks = (*responses_request.HAS_NOT, *responses_request.HAS_NO) if self._apis[0] == "responses" else ()
        self._extra_fields = ExtraFields()
        self._takes_usage: bool | None = None  # whether it may be asked for the usage; None: not known yet
        apis = frozenset(self._apis)
        self._model = replace(
            self._model,
            continues=Feature.PREFIX in own.features,
            apis=apis,
            lacks=frozenset(lacks),
            takes=OPENAIS,
            translates=partial(documents.takes, api=self._apis[0], sees=Feature.IMAGES in own.features),
        )

    async def count_tokens(self, messages: tuple[Message, ...], tools: tuple[Tool, ...], deadline: Deadline) -> int:
        """vLLM's servers count at `/tokenize`; the API itself has no such method."""
        url = urljoin(f"{self._url}/", "../tokenize")  # beside /v1, not below it

        def body() -> dict[str, Any]:
            asked = {"model": self._own.model, "messages": to_messages(messages)}
            return {**asked, "tools": to_tools(tools)} if tools else asked

        return await self._count(url, size(messages, tools), body, "count", deadline)

    def generate(self, request: Request, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
        if request.method:
            return self._method(request, deadline)
        generate: Generate = partial(self._extra_fields.generate, super().generate)
        generate = partial(without_foreign_thoughts, partial(with_other_ids, generate))
        first = self._takes_usage is None and not self._responds(request)
        return self._first(generate, request, deadline) if first else generate(request, deadline)

    async def _first(self, generate: Generate, request: Request, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
        """The answer to a chat completion, until it is known whether the provider may be asked for the usage. Mistral's
        API refuses that and reports the usage anyhow; others refuse some other option of the caller's."""
        counted = True

        async def uncounted(refused: RequestRefused) -> Request | None:
            nonlocal counted
            counted = not any(word in refused.message for word in _USAGE)
            return None if counted else replace(request, counted=False)

        async with aclosing(repeated(generate, request, deadline, uncounted)) as chunks:
            async for chunk in chunks:
                reported = counted or (chunk.finish and chunk.finish.usage.prompt_tokens)
                if self._takes_usage is None and reported:
                    self._takes_usage = counted
                yield chunk

    async def _method(self, request: Request, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
        """An answer that is not written token by token."""
        assert request.original is not None
        own = request.original
        body = await aside(request.tenant, size_in(own.body), partial(self._posted_method, own))
        self._running += 1
        try:
            status, headers, text = await self._ask(self._address(own.api), body, deadline, own.headers)
        finally:
            self._running -= 1
        if status != 200:
            with self._outages.noted():
                raise to_error(status, headers, text, self._key, self._provider_model)
        self._outages.ended()
        for chunk in methods.chunks(text, headers):
            yield chunk

    def _posted_method(self, own: Original) -> bytes:
        return encode(with_extra(methods.posted(own, self._own.model), self._extra))

    def _headers(self) -> Mapping[str, str]:
        return {self._dialect.key_header: f"{self._dialect.key_prefix}{self._key}"} if self._key else {}

    def _api(self, request: Request) -> str:
        """The API that a request goes to: its own, where the provider has that."""
        own = request.original
        return own.api if own and own.api in self._apis else self._apis[0]

    def _responds(self, request: Request) -> bool:
        return self._api(request) == "responses"

    def _cuts(self, request: Request) -> bool:
        return self._responds(request)  # `truncation`

    def _body(self, request: Request, max_tokens: int | None) -> dict[str, Any]:
        if self._responds(request):
            _refuse_beginning(request)
            return responses_request.to_body(request, self._own.model, max_tokens)
        body = to_body(request, self._own.model, max_tokens, self._limit, self._dialect.of_calls)
        return self._extra_fields.without(self._asking_for_usage(request, body))

    def _forwarded(self, request: Request, own: Original) -> dict[str, Any]:
        return self._forwarded_response(request, own) if self._responds(request) else self._forwarded_chat(request, own)

    def _forwarded_response(self, request: Request, own: Original) -> dict[str, Any]:
        _refuse_beginning(request)
        body = forwarded_response(request, own, lambda: responses_request.of_policies(request))
        return {**self._capped(request, body, (responses_request.LIMIT,)), "model": self._own.model, "stream": True}

    def _forwarded_chat(self, request: Request, own: Original) -> dict[str, Any]:
        """The rest of an answer that broke off is requested as vLLM's servers have it."""
        body = forwarded(request, own, lambda: self._translated(replace(request, prefix="")))
        if request.prefix:
            body = self._rest(body, request)
        body = self._asking_for_usage(request, self._capped(request, body))
        return {**self._extra_fields.without(body), "model": self._own.model, "stream": True}

    def _asking_for_usage(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        options = {name: given for name, given in (body.pop("stream_options", None) or {}).items() if name != _USAGE[1]}
        if request.counted and self._takes_usage is not False:
            options["include_usage"] = True
        return {**body, "stream_options": options} if options else body

    def _rest(self, body: dict[str, Any], request: Request) -> dict[str, Any]:
        """The request for the rest of an answer: with its prefix, and with limits reduced by the prefix."""
        begun = {"role": "assistant", "content": request.prefix}
        body = {**body, "messages": [*conversation(body), begun], **GO_ON}
        if request.sampling.max_tokens:
            body = {name: given for name, given in body.items() if name not in LIMITS}
            body[self._limit] = request.sampling.max_tokens
        if request.sampling.min_tokens is not None and "min_tokens" in body:
            body["min_tokens"] = request.sampling.min_tokens
        return body

    def _answer(self, request: Request) -> Answer:
        if self._responds(request):
            return ResponsesAnswer()
        own = request.original if self._model.reads(request) else None
        return OpenAIAnswer(int(float(own.untranslated.get("n", 1))) if own else 1)

    def _place(self, request: Request) -> str:
        return self._address("responses" if self._responds(request) else "")

    def _address(self, path: str) -> str:
        version = self._own.api_version
        query = f"?api-version={quote(version)}" if version else ""
        below = ""
        if version and path not in _OF_ALL_MODELS:
            below = self._dialect.versioned_path.format(model=quote(self._own.model, safe=""))
        return f"{self._url}{below}/{path or 'chat/completions'}{query}"


def _usual_apis(url: str) -> Sequence[OpenAIApi]:
    """The features of a provider where the settings name none."""
    return ("chat_completions", "responses") if _is_openais(url) else ("chat_completions",)


def _usual_limit(url: str, dialect: str, model: str) -> str:
    """The field for the most tokens of an answer where the settings do not say. All of OpenAI's own models take the
    newer one; elsewhere only those that take nothing else are asked with it."""
    newer = _is_openais(url) or (dialect == "azure" and _REASONS.match(model))
    return "max_completion_tokens" if newer else "max_tokens"


def _is_openais(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host == _HOST or host.endswith(f".{_HOST}")  # some regions have an address of their own


def _refuse_beginning(request: Request) -> None:
    if request.prefix:
        raise NotSupported("prefix: Responses do not go on from an answer's beginning")


async def start(settings: LlmSettings, progress: Progress) -> OpenAIEngine:
    """See `engines.py`. There is nothing to load."""
    return OpenAIEngine(settings)
