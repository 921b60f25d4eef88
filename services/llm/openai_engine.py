"""Any server that speaks OpenAI's chat completions, behind the seam."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import httpx
from httpx_sse import EventSource, SSEError

from services.llm.arrivals import together
from services.llm.config import LlmSettings
from services.llm.engine import Chunk, Load, Message, Model, Progress, Request
from services.llm.errors import BadEngineSettings, EngineDown, NotSupported
from services.llm.openai_errors import in_stream_status, to_error
from services.llm.openai_wire import DONE, Answer, to_body, to_messages
from services.runtime.deadline import Deadline
from services.runtime.errors import TooLate

_MAX_ERROR_BYTES = 16 * 1024


class OpenAIEngine:
    """One model of one provider, over a pool of connections."""

    def __init__(self, settings: LlmSettings, transport: httpx.AsyncBaseTransport | None = None):
        """`transport` replaces the network, for tests. Raises BadEngineSettings when there is no model to ask for."""
        own = settings.openai
        if not own.model:
            raise BadEngineSettings("openai.model: must be set")
        self._settings, self._key, self._running = own, own.api_key.get_secret_value(), 0
        self._default_max_tokens = settings.default_max_tokens
        self._model = Model(
            settings.public_name, "openai", own.context_tokens, settings.max_tokens_cap, "", own.continues
        )
        self._client = httpx.AsyncClient(
            base_url=own.base_url.get_secret_value(),
            headers={"authorization": f"Bearer {self._key}"} if self._key else {},
            http2=True,
            limits=httpx.Limits(max_connections=own.max_connections, max_keepalive_connections=own.max_connections),
            timeout=self._timeout(Deadline.never()),
            transport=transport,
        )

    async def generate(self, request: Request, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
        if request.prefix and not self._model.continues:
            raise NotSupported("prefix: this provider does not go on from an answer's beginning")
        asked = request.sampling.max_tokens or self._default_max_tokens
        max_tokens = min(asked, self._model.max_tokens)
        body = to_body(request, self._settings.model, max_tokens, self._settings.max_tokens_field)
        answer = Answer()
        self._running += 1
        try:
            async with aclosing(together(self._events(body, deadline))) as batches:
                async for events in batches:
                    chunk = answer.add(events)
                    if chunk:
                        yield chunk
                    if answer.broken:
                        break
        except (httpx.HTTPError, SSEError) as error:
            if not answer.begun:
                raise _unreachable(error, deadline) from None
        finally:
            self._running -= 1
        if not answer.begun and answer.error:
            raise to_error(in_stream_status(answer.error), {}, answer.error, self._key)
        if not answer.begun:
            raise EngineDown("the provider ended the stream before it said anything")
        yield answer.finish()

    async def count_tokens(self, messages: tuple[Message, ...], deadline: Deadline) -> int:
        """vLLM's servers count at `/tokenize`; the API itself has no such method."""
        url = self._client.base_url.join("../tokenize")  # beside /v1, not below it
        body = {"model": self._settings.model, "messages": to_messages(messages)}
        try:
            response = await self._client.post(url, json=body, timeout=self._timeout(deadline))
        except httpx.HTTPError as error:
            raise _unreachable(error, deadline) from None
        if response.status_code in (404, 405):
            raise NotSupported("count_tokens: the provider has no /tokenize")
        if response.status_code != httpx.codes.OK:
            raise to_error(response.status_code, response.headers, response.text, self._key)
        try:
            return int(response.json()["count"])
        except (ValueError, KeyError, TypeError):
            raise NotSupported("count_tokens: the provider's /tokenize does not answer with a count") from None

    def describe(self) -> Model:
        return self._model

    def load(self) -> Load:
        """Requests of ours: what else the provider does, it does not say."""
        return Load(self._running, 0)

    async def warm_up(self, progress: Progress) -> None:
        """Open a connection, TLS included. A provider that is away now may be back for the first caller."""
        try:
            response = await self._client.get("models")
            progress(f"warm-up: connected to {self._client.base_url.host}, HTTP {response.status_code}")
        except httpx.HTTPError as error:
            progress(f"warm-up: {self._client.base_url.host} cannot be reached yet ({type(error).__name__})")

    async def wait_failed(self) -> str:
        await asyncio.Event().wait()  # it may always come back
        raise AssertionError("unreachable")

    async def close(self) -> None:
        await self._client.aclose()

    async def _events(self, body: dict[str, object], deadline: Deadline) -> AsyncIterator[str]:
        headers = {"accept": "text/event-stream"}
        timeout = self._timeout(deadline)
        async with self._client.stream(
            "POST", "chat/completions", json=body, headers=headers, timeout=timeout
        ) as response:
            if response.status_code != httpx.codes.OK:
                text = (await response.aread())[:_MAX_ERROR_BYTES].decode(errors="replace")
                raise to_error(response.status_code, response.headers, text, self._key)
            async for event in EventSource(response).aiter_sse():
                yield event.data
                if event.data == DONE:
                    return

    def _timeout(self, deadline: Deadline) -> httpx.Timeout:
        """No wait outlives the call."""
        left = deadline.remaining()
        connect, read = self._settings.connect_timeout_ms / 1000, self._settings.read_timeout_ms / 1000
        return httpx.Timeout(min(read, left), connect=min(connect, left))


def _unreachable(error: Exception, deadline: Deadline) -> EngineDown | TooLate:
    """Its class says enough; its text may hold an address or what was sent."""
    if deadline.remaining() <= 0:
        return TooLate("the provider did not answer in time")
    return EngineDown(f"the provider cannot be reached or broke off ({type(error).__name__})")
