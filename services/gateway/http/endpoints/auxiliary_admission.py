"""What is asked beside answers, of one service behind the gateway: a request of the tenant's quota, within a budget,
for as long as the client is there."""

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
    """`tokens` is what the tenant is charged in the end, also where its client has left before."""

    tenant: str
    timeout_s: float
    metadata: Metadata
    tokens: int = 0

    def failed(self, error: ServiceError) -> None:
        """The service that is asked has refused, or is not there: that costs nothing. To have no time left does."""
        if isinstance(error, (Unavailable, Exhausted, InvalidInput, NotSupported, Misconfigured)):
            self.tokens = 0


@dataclass(frozen=True, slots=True)
class AuxiliaryAdmission:
    """Admission of requests that are served beside answers."""

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
        """Inside, the tenant has a slot, and `tokens` are reserved. `beat` keeps a stream alive. `longest_ms`: the
        budget of what names none, and the most that can be named; None: as for any request. `order`: the request's
        options; None: those of its headers. Raises `QuotaExceeded`, and
        `Left`."""
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
        settings = self.settings
        if order is None:
            order = RequestOptions(pb.GenerateRequest())
            take_options(order, exchange.headers, Fields({}))
        usual, most = longest_ms or settings.default_budget_ms, longest_ms or settings.max_budget_ms
        asked = order.request.budget_ms if order.request.HasField("budget_ms") else usual
        if asked < 1:
            raise InvalidInput("x-hedgerow-budget-ms", "at least 1", asked)
        return min(asked, most, exchange.credential.tenant.max_budget_ms or asked) / 1000


@dataclass(frozen=True, slots=True)
class TextInputs:
    """The texts of a request, and the tokens that they are charged as."""

    texts: list[str]
    tokens: int


def read_texts(body: Fields, name: str, most: int, most_bytes: int) -> TextInputs:
    """The texts of a required field, which has an array of them or one alone. Raises `InvalidInput`."""
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
