"""A gateway whose embeddings, rerank and moderations come from scripted llm services."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission.identity import Tenant
from services.gateway.config import GatewaySettings, Method
from services.gateway.errors import AnswersWaiting
from services.gateway.generation.stack import make_stack
from services.gateway.http.endpoints.embedding import Embedding
from services.gateway.http.endpoints.endpoint_admission import EndpointAdmission
from services.gateway.http.endpoints.moderations import Moderations
from services.gateway.http.endpoints.providers import ByName, Own, Providers
from services.gateway.upstream.router import Routes
from services.runtime.policy.waiting_bytes import WaitingBytes
from services.runtime.routing import Model
from tests.clock import loop_clock
from tests.unit.gateway.answer.scene import EVERYTHING
from tests.unit.gateway.http.endpoints.calling import Bills, EmbeddingCache, asked, wire
from tests.unit.gateway.http.wire import Wire
from tests.unit.gateway.scripted import ScriptedLlm, ScriptedRoutes, Step, fleet
from tests.waiting import until

SERVES: Mapping[str, tuple[Method, ...]] = {"embed": ("embeddings", "rerank"), "judge": ("moderations",)}


SETTINGS = GatewaySettings(llm_addresses={"chat": "a:1", "embed": "b:1", "judge": "c:1"}, serves=SERVES)
ANSWER = b'{"object": "list", "data": [{"embedding": [0.25]}], "usage": {"prompt_tokens": 4}}'
PRICED = {"prompt_usd_per_mtok": 20.0}


def says(*pieces: bytes, tokens: int = 4) -> list[Step]:
    """An answer in pieces, and its usage."""
    finish = llm_pb2.Finish(reason=chat_pb2.FINISH_REASON_STOP, usage=chat_pb2.Usage(prompt_tokens=tokens))
    relayed = [llm_pb2.GenerateResponse(relayed=[piece]) for piece in pieces]
    return [*relayed, llm_pb2.GenerateResponse(finish=finish)]


@dataclass
class Gateway:
    """One gateway. `own`: whether it has an embedder of its own; `tokens`: what its tenant was charged."""

    embed: Any = field(default_factory=lambda: ScriptedLlm(*says(ANSWER[:9], ANSWER[9:])))
    judge: Any = field(default_factory=lambda: ScriptedLlm(*says(b'{"results": []}', tokens=0)))
    chat: Any = field(default_factory=ScriptedLlm)
    own: bool = True
    settings: GatewaySettings = SETTINGS
    tenant: Tenant = EVERYTHING
    headers: bytes = b""
    bills: Bills = field(default_factory=Bills)
    answers: WaitingBytes = field(default_factory=lambda: WaitingBytes(2 * len(ANSWER), AnswersWaiting))

    async def post(self, method: Method, **body: Any) -> tuple[int, Any]:
        """The status and the body of the answer."""
        sent = await self.send(method, json.dumps(body))
        await until(lambda: sent.statuses, 600)
        head, _, body = bytes(sent.transport.written).partition(b"\r\n\r\n")
        await sent.end()
        self.headers = head
        return sent.statuses[0], json.loads(body)

    async def send(self, method: Method, body: str) -> Wire:
        sent = wire(self._serving(method), self.tenant)
        await sent.send(asked(body))
        return sent

    @property
    def tokens(self) -> int | None:
        (bill,) = self.bills.made
        return bill.cost

    def _serving(self, method: Method) -> ByName:
        llms = fleet(loop_clock, {"retry": {"max_share": 1}}, chat=self.chat, embed=self.embed, judge=self.judge)
        admission = EndpointAdmission(self.settings, self.bills)
        routes = Routes(SETTINGS.llm_addresses, expected=False, never=SERVES)
        routes._take_rows([priced("embed")])
        embedding = Embedding(admission, EmbeddingCache() if self.own else None)
        own: Mapping[Method, Own] = {"embeddings": embedding.embed, "rerank": embedding.rerank}
        providers = Providers(admission, llms, make_stack(llms, lambda _: None), routes, self.answers)
        moderates = method == "moderations"
        return ByName(method, providers, own.get(method, Moderations(admission)), self.own or moderates)


def priced(name: str) -> Model:
    """A row of the router's table."""
    row = ScriptedRoutes((name,)).model(name)
    assert row
    return replace(row, **PRICED)


def body_of(llm: ScriptedLlm) -> Any:
    """The body that the provider's service was asked with, last."""
    return json.loads(llm.requests[-1].original.body)
