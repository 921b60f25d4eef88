"""Any server that speaks OpenAI's chat completions, behind the seam."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from urllib.parse import urljoin, urlsplit

from services.llm.arrivals import together
from services.llm.config import LlmSettings, OpenAISettings
from services.llm.engine import Chunk, Load, Message, Model, Progress, Request
from services.llm.errors import BadEngineSettings, EngineDown, NotSupported
from services.llm.openai_errors import in_stream_status, to_error
from services.llm.openai_wire import DONE, Answer, to_body, to_messages
from services.llm.transport.client import ProviderClient
from services.llm.transport.http1 import Http1
from services.llm.transport.reply import Limits
from services.llm.transport.wire import Broken, Options, Wire
from services.runtime.deadline import Deadline
from services.runtime.errors import TooLate

_MAX_ERROR_BYTES = 16 * 1024
_WARM_UP_S = 10.0
_JSON = "application/json"


class OpenAIEngine:
    """One model of one provider, over a pool of connections."""

    def __init__(self, settings: LlmSettings, wire: Wire | None = None):
        """`wire` replaces the network, for tests. Raises BadEngineSettings when there is no model to ask for."""
        own = settings.openai
        if not own.model:
            raise BadEngineSettings("openai.model: must be set")
        self._settings, self._key, self._running = own, own.api_key.get_secret_value(), 0
        self._default_max_tokens = settings.default_max_tokens
        self._model = Model(
            settings.public_name, "openai", own.context_tokens, settings.max_tokens_cap, "", own.continues
        )
        self._url = own.base_url.get_secret_value().rstrip("/")
        self._client = ProviderClient(
            wire or _wire(own),
            {"authorization": f"Bearer {self._key}"} if self._key else {},
            own.max_connections,
            Limits(own.max_event_bytes, own.max_answer_bytes),
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
        except (Broken, TimeoutError) as error:
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
        url = urljoin(f"{self._url}/", "../tokenize")  # beside /v1, not below it
        body = {"model": self._settings.model, "messages": to_messages(messages)}
        try:
            async with self._client.request("POST", url, deadline, _encode(body), **{"content-type": _JSON}) as reply:
                status, headers = reply.status, reply.headers
                text = await reply.text(self._settings.max_answer_bytes if status == 200 else _MAX_ERROR_BYTES)
        except (Broken, TimeoutError) as error:
            raise _unreachable(error, deadline) from None
        if status in (404, 405):
            raise NotSupported("count_tokens: the provider has no /tokenize")
        if status != 200:
            raise to_error(status, headers, text, self._key)
        try:
            return int(json.loads(text)["count"])
        except (ValueError, KeyError, TypeError):
            raise NotSupported("count_tokens: the provider's /tokenize does not answer with a count") from None

    def describe(self) -> Model:
        return self._model

    def load(self) -> Load:
        """Requests of ours: what else the provider does, it does not say."""
        return Load(self._running, 0)

    async def warm_up(self, progress: Progress) -> None:
        """Open a connection, TLS included. A provider that is away now may be back for the first caller."""
        host, deadline = urlsplit(self._url).hostname, Deadline.after(_WARM_UP_S)
        try:
            async with self._client.request("GET", f"{self._url}/models", deadline) as reply:
                reply.told = True
            progress(f"warm-up: connected to {host}, HTTP {reply.status}")
        except (Broken, TimeoutError) as error:
            progress(f"warm-up: {host} cannot be reached yet ({_word(error)})")

    async def wait_failed(self) -> str:
        await asyncio.Event().wait()  # it may always come back
        raise AssertionError("unreachable")

    async def close(self) -> None:
        await self._client.close()

    async def _events(self, body: dict[str, object], deadline: Deadline) -> AsyncIterator[str]:
        headers = {"content-type": _JSON, "accept": "text/event-stream"}
        url = f"{self._url}/chat/completions"
        async with self._client.request("POST", url, deadline, _encode(body), **headers) as reply:
            if reply.status != 200:
                raise to_error(reply.status, reply.headers, await reply.text(_MAX_ERROR_BYTES), self._key)
            async for event in reply.events():
                reply.told = event == DONE
                yield event
                if reply.told:
                    return


async def start(settings: LlmSettings, progress: Progress) -> OpenAIEngine:
    """See `engines.py`. There is nothing to load."""
    return OpenAIEngine(settings)


def _wire(own: OpenAISettings) -> Wire:
    options = Options(
        max_connections=own.max_connections,
        connect_s=own.connect_timeout_ms / 1000,
        read_s=own.read_timeout_ms / 1000,
        idle_s=own.idle_timeout_ms / 1000,
        ca_file=own.ca_file,
    )
    try:
        if own.http_version == "1.1":
            return Http1(own.base_url.get_secret_value(), options)
        from services.llm.transport.http2 import Http2  # not every process needs it

        return Http2(options)
    except (OSError, RuntimeError) as error:
        raise BadEngineSettings(f"openai.ca_file: must hold certificates as PEM ({type(error).__name__})") from None


def _encode(body: Mapping[str, object]) -> bytes:
    """In ASCII, so that no text is impossible to send."""
    return json.dumps(body, separators=(",", ":")).encode()


def _unreachable(error: Exception, deadline: Deadline) -> EngineDown | TooLate:
    if deadline.remaining() <= 0:
        return TooLate("the provider did not answer in time")
    return EngineDown(f"the provider cannot be reached or broke off ({_word(error)})")


def _word(error: Exception) -> str:
    """For what happened. `Broken` holds nothing that is secret; other errors' texts may."""
    return str(error) if isinstance(error, Broken) else type(error).__name__
