"""proto ↔ domain, nothing more."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from urllib.parse import unquote

from hedgerow.llm.v1 import llm_pb2
from services.llm import features, untranslated, validation
from services.llm.engine import Engine, Model, Request
from services.llm.errors import RequestRefused
from services.llm.genai import Recorder
from services.llm.own_limits import OwnLimits
from services.llm.translate import FEATURES, from_sampling, to_messages, to_request, to_response, to_tools
from services.runtime.aside import aside, size_in, size_of_conversation
from services.runtime.rpc.authorization import TENANT_HEADER
from services.runtime.rpc.boundary import Call


class LLMServicer:
    """Serves `hedgerow.llm.v1.LLMService` with one engine."""

    def __init__(self, engine: Engine, limits: OwnLimits = OwnLimits(), identity: str = ""):  # noqa: B008  # frozen
        self._engine, self._limits, self._identity = engine, limits, identity

    async def Generate(
        self, request: llm_pb2.GenerateRequest, call: Call
    ) -> AsyncGenerator[llm_pb2.GenerateResponse, None]:
        model, tenant = self._engine.describe(), unquote(call.header(TENANT_HEADER) or "")
        size = max(size_of_conversation(request.messages), size_in(request.original.body))
        wanted, omitted = await aside(tenant, size, partial(_read, request, tenant, model))
        recorder = Recorder(call.span, model, wanted)
        try:
            async with aclosing(self._engine.generate(wanted, call.deadline)) as chunks:
                async for chunk in chunks:
                    recorder.saw(chunk)
                    response = to_response(chunk, tell_cached=model.salts or not wanted.cache_salt)
                    if chunk.finish:
                        used = chunk.finish.usage.prompt_tokens
                        response.finish.own_max_tokens = self._limits.of(wanted, model, used)
                        response.finish.identity = self._identity
                        response.finish.omitted.extend(omitted)
                    yield response
        except RequestRefused as refused:
            if wanted.original and model.reads(wanted):
                refused.tell(wanted.original.api)
            raise

    async def CountTokens(self, request: llm_pb2.CountTokensRequest, call: Call) -> llm_pb2.CountTokensResponse:
        messages = to_messages(request.messages)
        validation.check_messages(messages)
        features.check_messages(messages, self._engine.describe())
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
