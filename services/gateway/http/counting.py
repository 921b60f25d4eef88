"""How many tokens a prompt has, as the model that would read it counts them."""

from __future__ import annotations

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission import messages
from services.gateway.admission.control import AdmissionControl
from services.gateway.admission.quota import REQUEST
from services.gateway.config import GatewaySettings
from services.gateway.http.exchange import Exchange
from services.gateway.http.messages_request import read_prompt
from services.gateway.http.sse import compact
from services.gateway.http.watch import gone
from services.gateway.upstream.fleet import Fleet
from services.runtime import telemetry
from services.runtime.errors import InvalidInput

_WITHIN_S = 10.0


class Counting:
    """Serves `/v1/messages/count_tokens`: a request of the tenant's, which costs no tokens. Tools are not counted."""

    def __init__(self, settings: GatewaySettings, fleet: Fleet, admission: AdmissionControl):
        self._settings, self._fleet, self._admission = settings, fleet, admission

    async def __call__(self, exchange: Exchange) -> None:
        request = read_prompt(await exchange.fields(), self._settings.llm_addresses).request
        self._check(request)
        place = await self._admission.hold(exchange.credential.tenant, exchange.trace_id, _WITHIN_S, REQUEST)
        try:
            tokens = await gone(exchange.receive, self._count(request, exchange))
        finally:
            place.settle(0)
        await exchange.reply.whole(200, compact({"input_tokens": tokens}))

    async def _count(self, request: pb.GenerateRequest, exchange: Exchange) -> int:
        """By a replica of the model, or of the first where the router would choose."""
        pool = self._fleet.pools[request.model or next(iter(self._settings.llm_addresses))]
        replica = next((each for each in pool.replicas if each.breaker.would_admit()), None)
        if replica is None:
            raise pool.refusal()
        return await replica.llm.count_tokens(request.messages, _WITHIN_S, telemetry.propagate(exchange.span))

    def _check(self, request: pb.GenerateRequest) -> None:
        written, most = messages.check(request, self._settings.max_messages), self._settings.max_content_bytes
        messages.flatten(request)
        if written > most:
            raise InvalidInput("messages", f"at most {most} bytes of content", f"{written} bytes")
