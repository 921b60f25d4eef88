"""Admission of requests other than answers, to one service behind the gateway: each counts for the tenant's quota, has
a budget, and ends when its client leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.control import AdmissionControl
from services.gateway.admission.question import BYTES_PER_TOKEN
from services.gateway.admission.quota import REQUEST
from services.gateway.config import GatewaySettings
from services.gateway.http.fields import Fields
from services.gateway.http.request_options import RequestOptions, take_options
from services.gateway.http.server.client_watch import ConnectionWatch
from services.gateway.http.server.exchange import Exchange
from services.gateway.upstream.calls import whose
from services.runtime import telemetry
from services.runtime.errors import Exhausted, InvalidInput, Misconfigured, NotSupported, ServiceError, Unavailable
from services.runtime.telemetry import Metadata

Beat = Callable[[], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Admitted:
    """An admitted request. `tokens`: the tenant's charge at the end, also if its client has left."""

    tenant: str
    timeout_s: float
    metadata: Metadata
    tokens: int = 0

    def failed(self, error: ServiceError) -> None:
        """The service refused the request or is unavailable: no charge, except for a passed deadline."""
        if isinstance(error, (Unavailable, Exhausted, InvalidInput, NotSupported, Misconfigured)):
            self.tokens = 0


@dataclass(frozen=True, slots=True)
class EndpointAdmission:
    """Admission of requests other than answers."""

    settings: GatewaySettings
    admission: AdmissionControl

    @asynccontextmanager
    async def admitted(
        self,
        exchange: Exchange,
        beat: Beat | None = None,
        longest_ms: int | None = None,
        tokens: int = 0,
        order: RequestOptions | None = None,
    ) -> AsyncIterator[Admitted]:
        """Inside the block, the tenant has a slot, and `tokens` are reserved. `beat` keeps a stream alive.
        `longest_ms`: the default budget, and the largest; None: as for answers. `order`: the request's options; None:
        those of its headers. Raises `QuotaExceeded` and `Left`."""
        tenant, timeout_s = exchange.credential.tenant, self._budget_s(exchange, longest_ms, order)
        reservation = await self.admission.hold(tenant, exchange.trace_id, timeout_s, REQUEST, tokens)
        exchange.admitted()
        admitted = Admitted(tenant.name, timeout_s, (*telemetry.propagate(exchange.span), whose(tenant.name)), tokens)
        try:
            with ConnectionWatch(exchange.receive, 0, self.settings.http.heartbeat_ms / 1000, beat):
                yield admitted
        finally:
            reservation.settle(admitted.tokens)

    def _budget_s(self, exchange: Exchange, longest_ms: int | None, order: RequestOptions | None) -> float:
        settings, tenant = self.settings, exchange.credential.tenant
        if order is None:
            order = RequestOptions(pb.GenerateRequest())
            take_options(order, exchange.headers, Fields({}))
        usual = longest_ms or tenant.default_budget_ms or settings.default_budget_ms
        most = longest_ms or settings.max_budget_ms
        asked = order.request.budget_ms if order.request.HasField("budget_ms") else usual
        if asked < 1:
            raise InvalidInput("x-hedgerow-budget-ms", "at least 1", asked)
        return min(asked, most, tenant.max_budget_ms or asked) / 1000


@dataclass(frozen=True, slots=True)
class TextInputs:
    """The texts of a request, and the tokens to charge for them."""

    texts: list[str]
    tokens: int


def read_texts(body: Fields, name: str, most: int, most_bytes: int) -> TextInputs:
    """The texts of a required field: an array of them, or a single one. Raises `InvalidInput`."""
    texts = body.texts(name)
    if not 1 <= len(texts) <= most:
        raise InvalidInput(name, f"1 to {most} strings", len(texts))
    return TextInputs(texts, tokens_of(name, texts, most_bytes))


def tokens_of(name: str, texts: list[str], most_bytes: int) -> int:
    """An estimate of the tokens of `texts`. Raises `InvalidInput` for more than `most_bytes` together."""
    size = sum(len(text.encode()) for text in texts)
    if size > most_bytes:
        raise InvalidInput(name, f"at most {most_bytes} bytes together", f"{size} bytes")
    return size // BYTES_PER_TOKEN
