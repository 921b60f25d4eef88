"""proto ↔ domain, nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

from grpc_health.v1 import health_pb2

from hedgerow.llm.v1 import llm_pb2
from services.llm import features, untranslated, validation
from services.llm.engine import Engine, Message, Model, Request
from services.llm.errors import ProviderNotReached, RequestRefused
from services.llm.genai import Recorder
from services.llm.translate import FEATURES, from_sampling, to_messages, to_request, to_response, to_tools
from services.runtime.aside import aside, size_in, size_of_conversation
from services.runtime.rpc.authorization import TENANT_HEADER
from services.runtime.rpc.boundary import Call

_AGAIN_S = 0.05  # to the next look whether there is a connection


@dataclass(frozen=True, slots=True)
class OwnLimits:
    """The limits on an answer's tokens that are this service's own, and not its request's or its model's: the settings
    `default_max_tokens` and `max_tokens_cap`; None: not set."""

    default: int | None = None
    cap: int | None = None

    def of(self, request: Request, model: Model, prompt_tokens: int) -> int:
        """The most tokens that the answer may have by these settings; 0 where they do not limit it, because the request
        or the model's own default asks for no more, or the context holds fewer. `prompt_tokens` 0: not known."""
        said = request.sampling.max_tokens or model.default_sampling.max_tokens
        usual = self.default or (None if model.reads(request) else model.usual_max_tokens)
        most = min(filter(None, (said or usual, self.cap)), default=0)
        room = model.context_tokens - prompt_tokens if model.context_tokens and prompt_tokens else most
        return 0 if most == said or most > room else most


class LLMServicer:
    """Serves `hedgerow.llm.v1.LLMService` with one engine."""

    def __init__(self, engine: Engine, limits: OwnLimits = OwnLimits(), identity: str = ""):  # frozen
        self._engine, self._limits, self._identity = engine, limits, identity
        self._not_reached = asyncio.Event()  # set by a request, until there is a connection again

    async def follow_health(self, say: Callable[[int], None]) -> None:
        """Say NOT_SERVING while the provider cannot be reached. Never returns."""
        while True:
            await self._not_reached.wait()
            say(health_pb2.HealthCheckResponse.NOT_SERVING)
            while (outage := self._engine.load().outage) and outage.away:  # noqa: ASYNC110
                await asyncio.sleep(_AGAIN_S)
            self._not_reached.clear()
            say(health_pb2.HealthCheckResponse.SERVING)

    async def Generate(
        self, request: llm_pb2.GenerateRequest, call: Call
    ) -> AsyncGenerator[llm_pb2.GenerateResponse, None]:
        model, tenant = self._engine.describe(), unquote(call.header(TENANT_HEADER) or "")
        size = max(size_of_conversation(request.messages, request.tools), size_in(request.original.body))
        wanted, omitted = await aside(tenant, size, partial(_read, request, tenant, model))
        recorder = Recorder(call.span, model, wanted)
        try:
            async with aclosing(self._engine.generate(wanted, call.deadline)) as chunks:
                async for chunk in chunks:
                    recorder.record(chunk)
                    response = to_response(chunk, report_cached=model.salts or not wanted.cache_salt)
                    if chunk.finish:
                        used = chunk.finish.usage.prompt_tokens
                        response.finish.own_max_tokens = self._limits.of(wanted, model, used)
                        response.finish.identity = self._identity
                        response.finish.omitted.extend(omitted)
                    yield response
        except ProviderNotReached:
            self._not_reached.set()
            raise
        except RequestRefused as refused:
            if wanted.original and model.reads(wanted):
                refused.include_provider_error(wanted.original.api)
            raise

    async def CountTokens(self, request: llm_pb2.CountTokensRequest, call: Call) -> llm_pb2.CountTokensResponse:
        model, tenant = self._engine.describe(), unquote(call.header(TENANT_HEADER) or "")

        def read() -> tuple[Message, ...]:
            messages = to_messages(request.messages)
            validation.check_messages(messages)
            features.check_messages(messages, model)
            return messages

        messages = await aside(tenant, size_of_conversation(request.messages), read)
        tokens = await self._engine.count_tokens(messages, to_tools(request.tools), call.deadline)
        return llm_pb2.CountTokensResponse(tokens=tokens)

    async def GetModel(self, request: llm_pb2.GetModelRequest, call: Call) -> llm_pb2.GetModelResponse:
        model, load = self._engine.describe(), self._engine.load()
        return llm_pb2.GetModelResponse(
            name=model.name,
            engine=model.engine,
            context_tokens=model.context_tokens,
            max_tokens=model.max_tokens,
            speculation=model.speculation,
            running=load.running,
            waiting=load.waiting,
            continues=model.continues,
            features=[number for feature, number in FEATURES.items() if feature in model.features],
            default_sampling=from_sampling(model.default_sampling),
            outage=llm_pb2.Outage(url=load.outage.url, reason=load.outage.reason) if load.outage else None,
        )


def _read(request: llm_pb2.GenerateRequest, tenant: str, model: Model) -> tuple[Request, tuple[str, ...]]:
    """The engine's request, and the fields that are left out of it. Raises `InvalidInput`."""
    wanted, omitted = to_request(request, tenant), tuple[str, ...]()
    forwarded = model.reads(wanted)
    features.check_api(wanted, model)
    if not wanted.method:
        validation.check(wanted, forwarded=forwarded)
    if not forwarded:  # else the provider says what it cannot do
        if wanted.omits:
            wanted, omitted = untranslated.without(wanted, model)
        features.check(wanted, model)
        untranslated.check(wanted.original, model)
    return wanted, omitted
