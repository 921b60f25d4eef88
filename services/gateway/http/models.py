"""The models that may be asked for, as OpenAI's list has them: those of this gateway, and the tiers by their names."""

from __future__ import annotations

from typing import Any

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.model import TIERS, unknown
from services.gateway.config import GatewaySettings
from services.gateway.http.exchange import Exchange
from services.gateway.http.sse import compact
from services.gateway.upstream.routes import Routes


class Models:
    """Serves `/v1/models` and `/v1/models/{id}`."""

    def __init__(self, settings: GatewaySettings, routes: Routes, created: int):
        self._names, self._routes, self._created = tuple(settings.llm_addresses), routes, created

    async def list(self, exchange: Exchange) -> None:
        data = [self._told(name) for name in (*self._names, *TIERS)]
        await exchange.reply.whole(200, compact({"object": "list", "data": data}))

    async def one(self, exchange: Exchange) -> None:
        name = exchange.scope["path_params"]["model"]
        if name not in self._names and name not in TIERS:
            raise unknown(name, self._names)
        await exchange.reply.whole(200, compact(self._told(name)))

    def _told(self, name: str) -> dict[str, Any]:
        told: dict[str, Any] = {"id": name, "object": "model", "created": self._created, "owned_by": "hedgerow"}
        if context := self._routes.context_tokens(name):
            told["max_model_len"] = context
        if known := self._routes.model(name):
            told["hedgerow"] = {
                "tier": pb.Tier.Name(known.tier).removeprefix("TIER_").lower(),
                "prompt_usd_per_mtok": known.prompt_usd_per_mtok,
                "completion_usd_per_mtok": known.completion_usd_per_mtok,
                "cached_prompt_usd_per_mtok": known.cached_prompt_usd_per_mtok,
                "cache_write_usd_per_mtok": known.cache_write_usd_per_mtok,
            }
        return told
