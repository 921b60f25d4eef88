"""One model of one provider behind the seam, over a pool of connections. Subclasses have the words of an API."""

from __future__ import annotations

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from services.llm.answer import Answer, BadEvent
from services.llm.config import LlmSettings
from services.llm.dialects.forwarding import encode
from services.llm.engine import Chunk, Load, Message, Model, Original, Progress, Request, Tool
from services.llm.errors import AnswerTooLarge, BadEngineSettings, EngineDown
from services.llm.providers import context
from services.llm.providers.coalescing import chunks_of
from services.llm.providers.config import ProviderSettings
from services.llm.providers.errors import incomplete, to_error, unreachable, word
from services.llm.providers.methods import MOST_ANSWER_BYTES
from services.llm.providers.outages import Outages
from services.llm.providers.transport.client import ProviderClient, open_wire
from services.llm.providers.transport.reply import ReplyLimits
from services.llm.providers.transport.wire import Broken, TooLong, Wire
from services.llm.size import size
from services.runtime import limits
from services.runtime.aside import aside, size_in
from services.runtime.deadline import Deadline
from services.runtime.errors import NotSupported, ServiceError
from services.runtime.security.secrets import Url
from services.runtime.strict_json import compact

_log = logging.getLogger(__name__)
_MAX_ERROR_BYTES, _MAX_LISTED_BYTES = 16 * 1024, 8 * 1024 * 1024
_WARM_UP_S, _TRY_AGAIN_S, _NEVER_S = 10.0, 1.0, 1e6
_JSON = "application/json"
_SMALLER = "send fewer inputs, or ask for `encoding_format: base64`"
LIMITS = ("max_tokens", "max_completion_tokens")  # fields of requests


class ProviderEngine(ABC):
    """`group` is that of its settings, by its name; `_limit` the field of the most tokens of an answer."""

    _limit = "max_tokens"

    def __init__(self, group: str, own: ProviderSettings, url: str, settings: LlmSettings, wire: Wire | None):
        """`wire` replaces the network, for tests. Raises BadEngineSettings."""
        if not own.model:
            raise BadEngineSettings(f"{group}.model: must be set")
        if not url:
            raise BadEngineSettings(f"{group}.base_url: must be set")
        self._url, self._key, self._extra = url.rstrip("/"), _read_key(group, own), own.extra_body
        self._default_max_tokens, self._most_tokens = settings.default_max_tokens, settings.max_tokens_cap
        self._provider_model = own.model
        self._context_is_set, self._most_event_bytes = own.context_tokens > 0, own.max_event_bytes
        self._outages = Outages(settings.public_name or own.model, self._url)
        self._running, self._warm_every_s = 0, own.warm_every_ms / 1000 or _NEVER_S
        features, most = frozenset(own.features), settings.max_tokens_cap or 0
        self._model = Model(settings.public_name, group, own.context_tokens, most, "", False, features=features)
        headers = {name.lower(): value.get_secret_value() for name, value in own.extra_headers.items()}
        self._extra_headers = headers
        self._client = ProviderClient(
            wire or open_wire(group, own, url),
            {**self._headers(), **headers},
            own.max_connections,
            ReplyLimits(own.max_event_bytes, own.max_answer_bytes),
        )

    @abstractmethod
    def _headers(self) -> Mapping[str, str]:
        """Headers of every request, with the credential, by their names in lower case."""

    @abstractmethod
    def _body(self, request: Request, max_tokens: int | None) -> dict[str, Any]:
        """The body to send; `max_tokens` None: the provider decides. Raises InvalidInput for a request that the API
        cannot express."""

    @abstractmethod
    def _forwarded(self, request: Request, own: Original) -> dict[str, Any]:
        """The body to post for a request, in the words of this API."""

    @abstractmethod
    def _answer(self, request: Request) -> Answer:
        """A new one."""

    @abstractmethod
    def _address(self, path: str) -> str:
        """The URL of a method. Nothing: that of an answer."""

    def _place(self, request: Request) -> str:
        """The URL that `request` is posted to."""
        return self._address("")

    def _cuts(self, request: Request) -> bool:
        """Whether the provider may leave out what is too long."""
        return False

    @abstractmethod
    async def count_tokens(self, messages: tuple[Message, ...], tools: tuple[Tool, ...], deadline: Deadline) -> int:
        """See `Engine.count_tokens`."""

    async def generate(self, request: Request, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
        if request.prefix and not (self._model.continues or self._model.reads(request)):
            raise NotSupported("prefix: this provider does not go on from an answer's beginning")
        own = request.original if self._model.reads(request) else None
        work = max(size(request.messages, request.tools), size_in(request.original.body if request.original else b""))
        body = await aside(request.tenant, work, partial(self._posted, request, own))
        answer = self._answer(request)
        answer.relays = own is not None
        self._running += 1
        broke_off: ServiceError | None = None
        with self._outages.noted():
            try:
                events = self._events(
                    self._place(request), body, answer, deadline, self._beside(own.headers) if own else {}
                )
                async with aclosing(chunks_of(events, answer)) as chunks:
                    async for chunk in chunks:
                        yield chunk
            except (Broken, TimeoutError) as error:
                if not answer.begun or deadline.is_over():
                    raise unreachable(error, deadline, reached=self._outages.reached) from None
                broke_off = EngineDown(f"the provider broke off in mid-answer: {word(error)}")
            finally:
                self._running -= 1
            problem = None if answer.ended else broke_off or incomplete(answer, self._key, self._provider_model)
            if problem and not answer.begun:
                raise problem
        self._outages.note(problem) if problem else self._outages.ended()
        yield answer.finish()

    def describe(self) -> Model:
        return self._model

    def load(self) -> Load:
        """Requests of ours: what else the provider does, it does not say."""
        return Load(self._running, 0, self._outages.now)

    async def warm_up(self, progress: Progress) -> None:
        """Open a connection, TLS included, and read what the list of models says of this one. A provider that is away
        now may be back for the first caller."""
        deadline = Deadline.after(_WARM_UP_S)
        try:
            async with self._client.request("GET", self._address("models"), deadline) as reply:
                if reply.status == 200 and not self._context_is_set:
                    self._learn(await reply.text(_MAX_LISTED_BYTES))
                reply.complete = True
            progress(f"warm-up: connected to {Url(self._url)}, HTTP {reply.status}")
            self._outages.connected()
        except (Broken, TimeoutError) as error:
            self._outages.began(f"the provider cannot be reached: {word(error)}", away=True)

    def _learn(self, listed: str) -> None:
        if tokens := context.listed_tokens(listed, self._provider_model):
            self._model = replace(self._model, context_tokens=tokens)

    async def wait_failed(self) -> str:
        """Never: it may always come back. Meanwhile a connection is kept, and tried again where there is none."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            away = self._outages.away
            every_s = _TRY_AGAIN_S if away else self._warm_every_s
            idle_s = 0.0 if self._running and not away else loop.time() - max(began, self._client.used_at)
            if idle_s >= every_s:
                await self.warm_up(_log.debug)
            else:
                await asyncio.sleep(min(every_s - idle_s, _TRY_AGAIN_S))

    async def close(self) -> None:
        await self._client.close()

    async def _ask(
        self, url: str, body: bytes, deadline: Deadline, own: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], str]:
        """The status, the headers and the text of what a method answers in one piece. `own`: the caller's headers."""
        headers = {**self._beside(own or {}), "content-type": _JSON}
        with self._outages.noted():
            try:
                async with self._client.request("POST", url, deadline, body, **headers) as reply:
                    read = reply.whole(MOST_ANSWER_BYTES) if reply.status == 200 else reply.text(_MAX_ERROR_BYTES)
                    return reply.status, reply.headers, await read
            except TooLong as error:
                raise AnswerTooLarge(error.most_bytes, "input", _SMALLER) from None
            except (Broken, TimeoutError) as error:
                raise unreachable(error, deadline, reached=self._outages.reached) from None

    async def _count(
        self, url: str, work: int, body: Callable[[], Mapping[str, object]], field: str, deadline: Deadline
    ) -> int:
        """The number in `field` of what a method that counts answers. `work`: the size of what `body` writes."""
        posted = await aside("", work, lambda: compact(body()))
        status, headers, text = await self._ask(url, posted, deadline)
        path = urlsplit(url).path.rpartition("/")[2]
        if status in (404, 405):
            raise NotSupported(f"count_tokens: the provider has no /{path}")
        if status != 200:
            raise to_error(status, headers, text, self._key, self._provider_model)
        try:
            tokens = int(json.loads(text)[field])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            tokens = -1
        if not 0 <= tokens <= limits.TOKENS:
            raise NotSupported(f"count_tokens: the provider's /{path} does not answer with a count")
        return tokens

    def _capped(self, request: Request, body: dict[str, Any], fields: Sequence[str] = ()) -> dict[str, Any]:
        """A caller's own words, with no more tokens than the settings and the request allow, and as many as they say
        where it does not. `fields`: those that say how many, the usual one first. A limit may be in any of them,
        or in several, of which a provider may read one that was not read here."""
        most, names = self._most_of(request), fields or (self._limit, *LIMITS)
        asked = {name: body[name] for name in names if body.get(name) is not None}
        if not asked:
            usual = self._usual_tokens(most)
            return {**body, names[0]: usual} if usual else body
        return {**body, **{name: _at_most(tokens, most) for name, tokens in asked.items()}} if most else body

    def _most_of(self, request: Request) -> int | None:
        """The most tokens that an answer may have; None: no limit."""
        return min(filter(None, (self._most_tokens, request.most_tokens)), default=None)

    def _usual_tokens(self, most: int | None) -> int | None:
        """The limit of an answer whose request has none; `most`: that of all answers."""
        usual = self._default_max_tokens
        return min(usual or most, most) if most else usual

    def _beside(self, own: Mapping[str, str]) -> dict[str, str]:
        """A caller's headers beside those of the settings, which are stronger. Beta features are a list of both."""
        extra = self._extra_headers
        tried = {
            name: f"{extra[name]},{text}" for name, text in own.items() if name in extra and name.endswith("-beta")
        }
        return {**own, **extra, **tried}

    def _posted(self, request: Request, own: Original | None) -> bytes:
        if (limit := self._model.context_tokens) and not self._cuts(request):
            context.check(request, limit)
        if own:
            return encode(with_extra(self._forwarded(request, own), self._extra))
        return compact(with_extra(self._translated(request), self._extra))

    def _translated(self, request: Request) -> dict[str, Any]:
        asked, most = request.sampling.max_tokens or self._default_max_tokens, self._most_tokens
        return self._body(request, min(asked or most, most) if most else asked)

    async def _events(
        self, url: str, body: bytes, answer: Answer, deadline: Deadline, own: Mapping[str, str]
    ) -> AsyncGenerator[str, None]:
        headers = {**own, "content-type": _JSON, "accept": "text/event-stream"}
        async with self._client.request("POST", url, deadline, body, **headers) as reply:
            if reply.status != 200:
                said = await reply.text(_MAX_ERROR_BYTES)
                raise to_error(reply.status, reply.headers, said, self._key, self._provider_model)
            if reply.is_of(_JSON):
                for event in _in_one_piece(answer, await reply.whole(self._most_event_bytes)):
                    yield event
                return
            async with aclosing(reply.events()) as events:
                async for event in events:
                    reply.complete = answer.is_last(event)
                    yield event
                    if reply.complete:
                        return


def _in_one_piece(answer: Answer, body: str) -> list[str]:
    """The events of an answer by a provider that does not stream. Raises Broken for a body that is no answer."""
    try:
        return answer.events_of(body)
    except BadEvent:
        raise Broken("neither an event stream nor an answer in one piece") from None


def _read_key(group: str, own: ProviderSettings) -> str:
    """The credential, from the settings or from a file."""
    if own.api_key_file is None:
        return own.api_key.get_secret_value()
    try:
        key = own.api_key_file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadEngineSettings(f"{group}.api_key_file: must hold the credential ({type(error).__name__})") from None
    if not key or not key.isprintable():
        raise BadEngineSettings(f"{group}.api_key_file: must hold one line, the credential")
    return key


def with_extra(body: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """`body` and `extra`, whose objects are put together."""
    shared = [name for name in extra if isinstance(extra[name], dict) and isinstance(body.get(name), dict)]
    return {**body, **extra, **{name: {**body[name], **extra[name]} for name in shared}}


def _at_most(asked: Any, most: int) -> Any:
    """A limit as it was asked for, where that is a number and not above `most`."""
    return asked if type(asked) in (int, float) and asked <= most else most
