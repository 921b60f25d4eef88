"""Embeddings, rerank and moderations by models of providers: the request goes on in its caller's own words, and the
answer comes back as the provider wrote it. Quotas, breakers, limits, retries, hedges and prices are those of chat."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission import provider
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import BYTES_PER_TOKEN
from services.gateway.answer.unchanged_fields import masked_in, texts_of
from services.gateway.config import Method
from services.gateway.decisions import Decisions
from services.gateway.errors import GuardLate, GuardRefused, ModelUnknown
from services.gateway.generation.job import Job, Report
from services.gateway.generation.shared import Shared
from services.gateway.guard.checks import Checks, checks_for
from services.gateway.guard.screen import ContentScanner, Late, RefusedText
from services.gateway.http.endpoints.auxiliary_admission import Admitted, Aside
from services.gateway.http.fields import Fields, parse
from services.gateway.http.server.exchange import Exchange
from services.gateway.http.sse import compact
from services.gateway.policies.ticket import Ticket, score
from services.gateway.upstream import spending
from services.gateway.upstream.fleet import Fleet
from services.gateway.upstream.routes import Routes
from services.gateway.upstream.spending import Bill
from services.runtime.deadline import Deadline
from services.runtime.errors import ServiceError
from services.runtime.security.private_data import Names

ANY = ("auto", "default")  # names that stand for no model
_APIS: Mapping[Method, chat_pb2.Api] = {
    "embeddings": chat_pb2.API_EMBEDDINGS,
    "rerank": chat_pb2.API_RERANK,
    "moderations": chat_pb2.API_MODERATIONS,
}


class Own(Protocol):
    """The mesh's own service of a method. `others`: the models of providers that a request may name in its place."""

    async def __call__(self, exchange: Exchange, body: Fields | None = None, others: Sequence[str] = ()) -> None: ...


@dataclass(frozen=True, slots=True)
class Providers:
    """The models of providers, behind their policies."""

    aside: Aside
    fleet: Fleet
    models: Shared
    routes: Routes


@dataclass(frozen=True, slots=True)
class ByName:
    """Serves one method: by the model of a provider that the request names, else by the mesh's own service. Without
    one (`own` None), the first model stands for `auto`."""

    method: Method
    providers: Providers
    own: Own
    has_own: bool

    async def __call__(self, exchange: Exchange) -> None:
        names = self.providers.aside.settings.models_of(self.method)
        if not names:
            await self.own(exchange)
            return
        written = await exchange.json()
        body = parse(written, exchange.bounds.json)
        name = body.text("model") or ANY[0]
        if name in ANY and not self.has_own:
            name = names[0]
        if name in names:
            await self._forward(exchange, name, written, body)
        elif self.has_own:
            await self.own(exchange, body, names)
        else:
            raise ModelUnknown(name, ", ".join((*names, *ANY)))

    async def _forward(self, exchange: Exchange, model: str, written: bytes, body: Fields) -> None:
        tenant, began, report = exchange.credential.tenant, time.monotonic(), Report(Decisions())
        provider.check(_beside(body), tenant.provider, tenant.name)
        async with self.providers.aside.admitted(exchange, tokens=len(written) // BYTES_PER_TOKEN) as admitted:
            admitted.tokens = 0  # no model has read anything yet
            try:
                deadline = Deadline.after(admitted.timeout_s)
                if checks := _checks(tenant):
                    written = await _guarded(written, checks, deadline)
                request = llm_pb2.GenerateRequest(original=chat_pb2.Original(api=_APIS[self.method], body=written))
                rank = score(premium=tenant.premium, realtime=False, attempt=0)
                ticket = Ticket(rank, tenant.name, tenant.weight, deadline)
                job = Job(request, (model,), deadline, ticket, deadline, report, admitted.metadata)
                answered, bill = await self._answer(job, admitted)
            except ServiceError as error:
                report.decisions.explain(error, began, exchange.trace_id)
                raise
            total_ms = (time.monotonic() - began) * 1000
            told = [
                (b"x-hedgerow-model", report.model.encode()),
                (b"x-hedgerow-total-ms", b"%.1f" % total_ms),
                (b"x-hedgerow-cost-usd", b"%.8f" % bill.usd),
            ]
            await exchange.reply.whole(200, answered, told)

    async def _answer(self, job: Job, admitted: Admitted) -> tuple[bytes, Bill]:
        """The whole answer. A tenant is charged what models have read, however it ends."""
        pieces, bill = list[bytes](), Bill()
        self.providers.fleet.request()
        reader = self.providers.models.read(b"", job, admitted.timeout_s).reader
        try:
            while items := await reader.take():
                pieces += [piece for item in items for piece in item.relayed]
                if items[-1].HasField("finish"):
                    break
        finally:
            reader.leave()
            estimate = len(job.request.original.body) // BYTES_PER_TOKEN
            bill = spending.book(job.report.unbilled(), self.providers.routes, lambda: estimate)
            admitted.tokens = bill.tokens
        return b"".join(pieces), bill


def _beside(body: Fields) -> chat_pb2.Original:
    """The fields that a provider reads, by their places, for the check of what a tenant may have it do."""
    given = {name: body.seen(name) for name in body}
    places: dict[str, Any] = {name: each for name, each in given.items() if not isinstance(each, list)}
    for name, elements in given.items():
        if isinstance(elements, list):
            places |= {f"{name}[{at}]": each for at, each in enumerate(elements) if isinstance(each, dict)}
    return chat_pb2.Original(untranslated={place: compact(each).decode() for place, each in places.items()})


def _checks(tenant: Tenant) -> Checks | None:
    """The guard's, where it looks for private data in requests."""
    checks = checks_for(tenant.guard, pb.GenerateRequest())
    return checks if checks and checks.hides else None


async def _guarded(written: bytes, checks: Checks, deadline: Deadline) -> bytes:
    """The body with names in the place of private data. Raises `GuardRefused` and `GuardLate`."""
    body, hidden = json.loads(written), dict[str, str]()
    scanner = ContentScanner(checks, Names(), deadline)

    def look() -> Generator[None, None, None]:
        for text in texts_of(body):
            shown = yield from scanner.without_private(text)
            if shown != text:
                hidden[text] = shown

    try:
        for _ in look():
            await asyncio.sleep(0)
    except RefusedText as refused:
        raise GuardRefused(f"guard: the request holds {refused.what}", rule=refused.rule) from None
    except Late:
        if checks.settings.late == "closed":
            raise GuardLate("guard: not done within the budget of the request", late="closed") from None
    return compact(masked_in(body, hidden)) if hidden else written
