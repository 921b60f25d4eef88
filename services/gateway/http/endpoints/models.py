"""The list of models in OpenAI's and Anthropic's shapes, and the count of a prompt's tokens by its model."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission import messages, tools
from services.gateway.admission.question import TIERS, unknown
from services.gateway.config import GatewaySettings
from services.gateway.http.dialects.messages_request import read_prompt
from services.gateway.http.endpoints.endpoint_admission import Admitted, EndpointAdmission
from services.gateway.http.server.exchange import Exchange
from services.gateway.upstream.fleet import Fleet
from services.gateway.upstream.router import Routes
from services.runtime.aside import aside, size_in
from services.runtime.errors import InvalidInput
from services.runtime.strict_json import compact

_PRICES = ("prompt_usd_per_mtok", "completion_usd_per_mtok", "cached_prompt_usd_per_mtok", "cache_write_usd_per_mtok")


class Models:
    """Serves `/v1/models` and `/v1/models/{id}`."""

    def __init__(self, settings: GatewaySettings, routes: Routes, created: int):
        self._names, self._routes, self._created = tuple(settings.llm_addresses), routes, created
        self._serves = settings.serves

    async def list(self, exchange: Exchange) -> None:
        """Send all models, then the tiers."""
        names = (*self._names, *TIERS)
        page = {"first_id": names[0], "last_id": names[-1], "has_more": False} if exchange.is_anthropics else {}
        data = [self._describe(name, exchange) for name in names]
        await exchange.reply.whole(200, compact({"object": "list", "data": data, **page}))

    async def one(self, exchange: Exchange) -> None:
        """Send the model or tier that the path names. Raises `ModelUnknown`."""
        name = exchange.scope["path_params"]["model"]
        if name not in self._names and name not in TIERS:
            raise unknown(name, self._names)
        await exchange.reply.whole(200, compact(self._describe(name, exchange)))

    def _describe(self, name: str, exchange: Exchange) -> dict[str, Any]:
        fields: dict[str, Any] = {"id": name, "object": "model", "created": self._created, "owned_by": "hedgerow"}
        if exchange.is_anthropics:
            created = datetime.fromtimestamp(self._created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            fields |= {"type": "model", "display_name": name, "created_at": created, "lifecycle": "active"}
        if context := self._routes.context_tokens(name):
            fields["max_model_len"] = context
        if methods := self._serves.get(name):
            fields["hedgerow"] = {"serves": methods}
            if known := self._routes.model(name):
                fields["hedgerow"]["prompt_usd_per_mtok"] = known.prompt_usd_per_mtok
        elif known := self._routes.model(name):
            tier = pb.Tier.Name(known.tier).removeprefix("TIER_").lower()
            fields["hedgerow"] = {"tier": tier, **{name: getattr(known, name) for name in _PRICES}}
        return fields


class TokenCount:
    """Serves `/v1/messages/count_tokens`. Pictures and recordings are not counted."""

    def __init__(self, admission: EndpointAdmission, fleet: Fleet):
        self._admission, self._fleet = admission, fleet

    async def __call__(self, exchange: Exchange) -> None:
        settings = self._admission.settings
        data, tenant = await exchange.json(), exchange.credential.tenant.name

        def read() -> pb.GenerateRequest:
            request = read_prompt(exchange.parsed(data), settings.chat_models, settings.max_messages).request
            self._check(request)
            return request

        request = await aside(tenant, size_in(data), read)
        async with self._admission.admitted(exchange) as admitted:
            tokens = await self._count(request, admitted)
            await exchange.reply.whole(200, compact({"input_tokens": tokens}))

    async def _count(self, request: pb.GenerateRequest, admitted: Admitted) -> int:
        """Count tokens with a replica of the model, or of the first model if the router would choose."""
        pool = self._fleet.pools[request.model or self._admission.settings.chat_models[0]]
        return await pool.count_tokens(
            request.messages, request.tools, admitted.tenant, admitted.timeout_s, admitted.metadata
        )

    def _check(self, request: pb.GenerateRequest) -> None:
        settings = self._admission.settings
        written, most = messages.check(request, settings.max_messages), settings.max_content_bytes
        written += tools.check(request, settings.response_format)
        messages.flatten(request)
        if written > most:
            raise InvalidInput("messages", f"at most {most} bytes of content", f"{written} bytes")
