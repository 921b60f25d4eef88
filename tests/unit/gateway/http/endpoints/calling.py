"""Calls of endpoints that give no answer, by a tenant that may do everything, over a connection without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from hedgerow.cache.v1 import cache_pb2
from services.gateway.admission.control import AdmissionControl
from services.gateway.admission.identity import Tenant
from services.gateway.config import GatewaySettings
from services.gateway.http.endpoints.endpoint_admission import EndpointAdmission
from services.gateway.http.errors import ErrorResponse
from services.gateway.http.server.endpoint import Endpoint, Serve
from services.gateway.http.server.exchange import Exchange
from services.gateway.policies.work_shares import WorkShares
from services.runtime.errors import ServiceError
from tests.unit.gateway.answer.scene import EVERYTHING
from tests.unit.gateway.http.wire import Wire
from tests.waiting import until

SETTINGS = GatewaySettings(llm_addresses={"unused": "unused"}, http={"heartbeat_ms": 10_000})


@dataclass
class Bill:
    """A tenant's reservation: what was reserved, and what it came to."""

    reserved: int
    cost: int | None = None

    def settle(self, tokens: int) -> None:
        self.cost = tokens


class Bills(AdmissionControl):
    """Admits every caller, and notes the bills."""

    def __init__(self) -> None:
        super().__init__(SETTINGS.shed, lambda: 0.0)
        self.made: list[Bill] = []

    async def hold(self, tenant: Any, trace_id: str, within_s: float, claim: Any, tokens: int = 0) -> Any:
        self.made.append(Bill(tokens))
        return self.made[-1]


class EmbeddingCache:
    """A scripted cache: it embeds after some seconds, at most 256 texts at once, or raises. It keeps the requests."""

    VECTORS: Mapping[str, tuple[float, float]] = {
        "fruit": (1.0, 0.0), "pear": (0.8, 0.6), "apple": (0.96, 0.28), "stone": (-1.0, 0.0)
    }  # fmt: skip

    def __init__(self, *script: float | ServiceError):
        self.script, self.asked = script, list[cache_pb2.EmbedRequest]()

    async def embed(self, request: cache_pb2.EmbedRequest, *_: Any) -> cache_pb2.EmbedResponse:
        self.asked.append(request)
        assert 1 <= len(request.texts) <= 256
        for each in self.script:
            if isinstance(each, ServiceError):
                raise each
            await asyncio.sleep(each)
        vectors = [cache_pb2.Embedding(values=self.VECTORS.get(text, (0.0, 1.0))) for text in request.texts]
        return cache_pb2.EmbedResponse(model="mini", embeddings=vectors)


def admission(bills: Bills | None = None) -> EndpointAdmission:
    return EndpointAdmission(SETTINGS, bills or AdmissionControl(SETTINGS.shed, WorkShares(lambda: 0.0, 0.85)))


def wire(serve: Serve, tenant: Tenant = EVERYTHING) -> Wire:
    """A connection to one endpoint, all of whose callers are `tenant`."""

    async def known(exchange: Exchange) -> None:
        exchange.credential = SimpleNamespace(tenant=tenant)
        await serve(exchange)

    return Wire(Endpoint("/", known, ErrorResponse.openai, None, SETTINGS.http, False, False, True))


def asked(body: str, kind: str = "application/json") -> bytes:
    return f"POST / HTTP/1.1\r\nhost: g\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


async def replied(serve: Serve, tenant: Tenant = EVERYTHING, **body: Any) -> tuple[int, Any]:
    """The status and the body of a reply."""
    sent = wire(serve, tenant)
    await sent.send(asked(json.dumps(body)))
    await until(lambda: sent.statuses, 60)
    body = json.loads(bytes(sent.transport.written).partition(b"\r\n\r\n")[2])
    await sent.end()
    return sent.statuses[0], body
