"""How many tokens a prompt has, as the model that would read it counts them."""

from __future__ import annotations

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission import messages, tools
from services.gateway.http.auxiliary_admission import Admitted, Aside
from services.gateway.http.exchange import Exchange
from services.gateway.http.messages_request import read_prompt
from services.gateway.http.sse import compact
from services.gateway.upstream.fleet import Fleet
from services.runtime.errors import InvalidInput


class Counting:
    """Serves `/v1/messages/count_tokens`. Pictures and recordings are not counted."""

    def __init__(self, aside: Aside, fleet: Fleet):
        self._aside, self._fleet = aside, fleet

    async def __call__(self, exchange: Exchange) -> None:
        settings = self._aside.settings
        request = read_prompt(await exchange.fields(), settings.llm_addresses, settings.max_messages).request
        self._check(request)
        async with self._aside.admitted(exchange) as admitted:
            tokens = await self._count(request, admitted)
            await exchange.reply.whole(200, compact({"input_tokens": tokens}))

    async def _count(self, request: pb.GenerateRequest, admitted: Admitted) -> int:
        """By a replica of the model, or of the first where the router would choose."""
        pool = self._fleet.pools[request.model or next(iter(self._aside.settings.llm_addresses))]
        return await pool.count_tokens(
            request.messages, request.tools, admitted.tenant, admitted.timeout_s, admitted.metadata
        )

    def _check(self, request: pb.GenerateRequest) -> None:
        settings = self._aside.settings
        written, most = messages.check(request, settings.max_messages), settings.max_content_bytes
        written += tools.check(request, settings.response_format)
        messages.flatten(request)
        if written > most:
            raise InvalidInput("messages", f"at most {most} bytes of content", f"{written} bytes")
