"""Which path is served by what."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import generate_latest
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from hedgerow.chat.v1 import chat_pb2
from services.gateway.admission.intake import Intake
from services.gateway.api.servicer import GatewayServicer
from services.gateway.config import GatewaySettings
from services.gateway.generation.shared import Shared
from services.gateway.http.dialects import messages_answer
from services.gateway.http.dialects.chat_answer import ChatWriter
from services.gateway.http.dialects.chat_request import read_chat
from services.gateway.http.dialects.completions import CompletionWriter, read_completion
from services.gateway.http.dialects.messages_answer import MessageWriter
from services.gateway.http.dialects.messages_request import read_messages
from services.gateway.http.dialects.responses_answer import ResponseWriter
from services.gateway.http.dialects.responses_request import read_response
from services.gateway.http.endpoints.cache import Caching
from services.gateway.http.endpoints.embedding import Embedding
from services.gateway.http.endpoints.endpoint_admission import EndpointAdmission
from services.gateway.http.endpoints.generating import Dialect, Generating
from services.gateway.http.endpoints.models import Models, TokenCount
from services.gateway.http.endpoints.moderations import Moderations
from services.gateway.http.endpoints.providers import ByName, Providers
from services.gateway.http.endpoints.responses import Responses
from services.gateway.http.endpoints.stored_turns import StoredTurns
from services.gateway.http.endpoints.transcriptions import Transcriptions
from services.gateway.http.errors import ErrorResponse, MethodUnknown, NotOffered, RouteUnknown
from services.gateway.http.server.endpoint import Endpoint, Serve, Shape
from services.gateway.http.server.exchange import NAMED_MODEL, Exchange
from services.gateway.http.server.listener import HttpServer
from services.gateway.http.stored_responses.memory import Retries
from services.gateway.http.stored_responses.store import ResponseStore
from services.gateway.upstream.cache import Cache
from services.gateway.upstream.fleet import Fleet
from services.gateway.upstream.media import AudioBackend
from services.gateway.upstream.readiness import Readiness
from services.gateway.upstream.router import Routes
from services.runtime.errors import ServiceError
from services.runtime.process.config import is_loopback
from services.runtime.strict_json import compact

ANTHROPIC = messages_answer.error
RESPONSES = "/v1/responses"
DIALECTS: Mapping[str, Dialect] = {
    "/v1/chat/completions": Dialect(
        read_chat, ChatWriter, ErrorResponse.openai, chat_pb2.API_CHAT_COMPLETIONS, ChatWriter
    ),
    "/v1/completions": Dialect(read_completion, CompletionWriter, ErrorResponse.openai, choose=CompletionWriter),
    RESPONSES: Dialect(read_response, ResponseWriter, ErrorResponse.responses, chat_pb2.API_RESPONSES),
    "/v1/messages": Dialect(read_messages, MessageWriter, ANTHROPIC, chat_pb2.API_MESSAGES),
}
# Without pictures, recordings and conversations.
_TEXT_ALONE = frozenset({"/v1/embeddings", "/v1/rerank", "/v1/moderations", "/v1/cache/wrong"})
_METRICS = b"text/plain; version=0.0.4; charset=utf-8"
SERVICES = ("/openai/", "/anthropic/")  # the second one by clients of LiteLLM and Bifrost
_DEPLOYMENTS = "/openai/deployments/"
_OF_DEPLOYMENTS = ("/chat/completions", "/completions", "/embeddings", "/audio/transcriptions", "/audio/translations")
_TWICE = "/v1/v1/"  # by Anthropic's clients, whose base URL has no version
# First names of paths below `/v1`, which clients of LiteLLM leave out.
UNVERSIONED = frozenset(
    {"audio", "chat", "completions", "embeddings", "messages", "models", "moderations", "rerank", "responses"}
)


@dataclass(frozen=True, slots=True)
class HttpParts:
    """The components that the routes use."""

    settings: GatewaySettings
    servicer: GatewayServicer
    server: HttpServer
    routes: Routes
    models: Shared
    fleet: Fleet
    intake: Intake
    cache: Cache | None
    audio: AudioBackend | None
    readiness: Readiness
    responses: ResponseStore | None = None


def make_app(parts: HttpParts) -> ASGIApp:
    """The application: its routes, and CORS where pages may call."""
    app: ASGIApp = _App(parts)
    if origins := parts.settings.http.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=("*",),
        )
    return app


class _App:
    """Routes, and OpenAI's errors for what is no route."""

    def __init__(self, parts: HttpParts):
        self._parts = parts
        self._router = Router(list(self._routes()), redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # so that the router raises what is no route
        try:
            await self._router(by_own_path(scope), receive, send)
        except HTTPException as missed:
            path, method = scope["path"], scope["method"]
            error: ServiceError = RouteUnknown(f"{method} {path}: no such route")
            if missed.status_code == 405:
                error = MethodUnknown(path, (missed.headers or {}).get("Allow", ""), method)

            async def refuse(exchange: Exchange) -> None:
                raise error

            await self._endpoint("unknown", refuse)(scope, receive, send)

    def _routes(self) -> Iterator[Route]:
        parts = self._parts
        models = Models(parts.settings, parts.routes, int(time.time()))
        for path, dialect in DIALECTS.items():
            store = parts.responses if path == RESPONSES else None
            go_on = None if store is None else StoredTurns(store, Retries(parts.settings.keeps, parts.servicer.keeps))
            generating = Generating(dialect, parts.servicer, parts.settings, go_on)
            yield self._route("POST", path, generating, dialect.shape)
        admission = EndpointAdmission(parts.settings, parts.intake.admission)
        caching, embedding = Caching(admission, parts.cache), Embedding(admission, parts.cache)
        stored = Responses(admission, parts.responses)
        one = f"{RESPONSES}/{{id:response_id}}"
        yield Route(one, self._endpoint(one, stored), methods=["GET", "DELETE"])
        yield self._route("GET", f"{one}/input_items", stored.input_items)
        yield self._route("POST", "/v1/messages/count_tokens", TokenCount(admission, parts.fleet), ANTHROPIC)
        yield self._route("POST", "/v1/audio/transcriptions", Transcriptions(admission, parts.audio))
        translations = Transcriptions(admission, parts.audio, translate=True)
        yield self._route("POST", "/v1/audio/translations", translations)
        providers, has_cache = Providers(admission, parts.fleet, parts.models, parts.routes), parts.cache is not None
        for serve in (
            ByName("embeddings", providers, embedding.embed, has_cache),
            ByName("rerank", providers, embedding.rerank, has_cache),
            ByName("moderations", providers, Moderations(admission), has_own=True),
        ):
            yield self._route("POST", f"/v1/{serve.method}", serve, ErrorResponse.for_cohere_and_voyage)
        yield self._route("GET", "/v1/cache/stats", caching.stats)
        yield self._route("POST", "/v1/cache/wrong", caching.report_wrong)
        yield self._route("DELETE", "/v1/cache", caching.remove)
        yield self._route("DELETE", "/v1/cache/{key}", caching.remove)
        yield self._route("GET", "/v1/models", models.list)
        yield self._route("GET", "/v1/models/{model:path}", models.one)
        yield self._route("GET", "/metrics", self._metrics)
        yield Route("/health", self._endpoint("/health", self._health, open_=True), methods=["GET"])
        yield Route("/ready", self._endpoint("/ready", self._ready, open_=True), methods=["GET"])

    def _route(self, method: str, path: str, serve: Serve, shape: Shape = ErrorResponse.openai) -> Route:
        return Route(path, self._endpoint(path, serve, shape), methods=[method])

    def _endpoint(
        self, route: str, serve: Serve, shape: Shape = ErrorResponse.openai, *, open_: bool = False
    ) -> Endpoint:
        settings = self._parts.settings
        mutual, loopback = settings.tls_dir is not None, is_loopback(settings.http_address)
        shared = (self._parts.servicer, settings.http, mutual, loopback, open_, self._parts.intake)
        return Endpoint(route, serve, shape, *shared, route not in _TEXT_ALONE)

    async def _health(self, exchange: Exchange) -> None:
        leaving = self._parts.server.leaving
        body = compact({"status": "stopping" if leaving else "ok"})
        await exchange.reply.whole(503 if leaving else 200, body)

    async def _ready(self, exchange: Exchange) -> None:
        """The readiness page, with the state of gRPC health. It names kinds of services and no models, because it needs
        no credential."""
        leaving, missing = self._parts.server.leaving, self._parts.readiness.missing()
        body = {"status": "stopping"} if leaving else {"status": "starting", "missing": missing}
        ready = not (leaving or missing)
        await exchange.reply.whole(200 if ready else 503, compact({"status": "ready"} if ready else body))

    async def _metrics(self, exchange: Exchange) -> None:
        if not exchange.credential.tenant.anonymous:  # the page names all tenants
            raise NotOffered("metrics: not served here with keys: HEDGEROW_GATEWAY_METRICS_ADDRESS serves them")
        await exchange.reply.whole(200, generate_latest(), kind=_METRICS)


def by_own_path(scope: Mapping[str, Any]) -> dict[str, Any]:
    """A request's scope with the path of a route of this gateway in place of Azure OpenAI's, Cohere's second rerank,
    or one whose base URL was another gateway's, and with the model that an Azure deployment is; other paths stay.

    Sources: https://learn.microsoft.com/azure/ai-services/openai/reference, the packages `openai` (`AzureOpenAI`) and
    `cohere` (`ClientV2`), and https://docs.litellm.ai/docs/proxy/user_keys.
    """
    path: str = scope["path"]
    if path.startswith("//"):
        path = "/" + path.lstrip("/")
    if path.startswith(_DEPLOYMENTS):
        method = next((each for each in _OF_DEPLOYMENTS if path.endswith(each)), "")
        if model := path[len(_DEPLOYMENTS) : len(path) - len(method)] if method else "":
            return {**scope, "path": f"/v1{method}", NAMED_MODEL: model}
    elif path == "/v2/rerank":
        path = "/v1/rerank"
    elif path.startswith(SERVICES):
        path = path[path.index("/", 1) :]
    if path.startswith(_TWICE):
        path = path.removeprefix("/v1")
    elif path[1:].partition("/")[0] in UNVERSIONED:
        path = f"/v1{path}"
    return {**scope, "path": path}
