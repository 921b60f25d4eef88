"""Embeddings, rerank and moderations by models of providers: the request goes on in its caller's own words, and the
answer comes back as the provider wrote it. Quotas, breakers, limits, retries, hedges and prices are those of chat."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission import provider_fields
from services.gateway.admission.provider_fields import values_of
from services.gateway.admission.question import BYTES_PER_TOKEN
from services.gateway.answer.original_body import with_masks
from services.gateway.config import Method
from services.gateway.decisions import Decisions
from services.gateway.errors import AnswersWaiting, GuardLate, GuardRefused, ModelUnknown
from services.gateway.generation.job import Job, Report
from services.gateway.generation.shared import Shared
from services.gateway.guard.checks import Checks, guard_checks
from services.gateway.guard.screen import ContentScanner, Late, RefusedText
from services.gateway.http.endpoints.endpoint_admission import Admitted, EndpointAdmission
from services.gateway.http.fields import Fields
from services.gateway.http.request_options import RequestOptions, take_options
from services.gateway.http.server.exchange import Exchange
from services.gateway.policies.slot import SlotRequest, score
from services.gateway.settings.guard import GuardSettings
from services.gateway.upstream import spending
from services.gateway.upstream.fleet import Fleet
from services.gateway.upstream.router import Routes
from services.gateway.upstream.spending import Bill
from services.runtime.aside import give_way
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput, ServiceError, TooLate
from services.runtime.policy.waiting_bytes import Held, WaitingBytes
from services.runtime.security.private_data import Names
from services.runtime.strict_json import compact

ANY = ("auto", "default")  # names that stand for no model
VALUES_A_STEP = 64  # that the guard reads; a body may have a million texts, and the event loop runs between two steps
_LARGE_BYTES = 64 * 1024  # of a body whose private data is replaced in a thread: a million values take 1 s
ANSWERS_BYTES = 128 * 1024 * 1024  # of answers that are held, all together: a quarter of the gateway's container
_OF_TEI = "texts"  # the documents of a rerank, in Text Embeddings Inference's requests, which name no model
_BODY = "hedgerow"
_TAKEN = ("budget_ms", "guard")  # names in the body's `hedgerow`
_OF_REQUESTS = ("secrets", "personal")  # checks that a text without a conversation can have
_APIS: Mapping[Method, chat_pb2.Api] = {
    "embeddings": chat_pb2.API_EMBEDDINGS,
    "rerank": chat_pb2.API_RERANK,
    "moderations": chat_pb2.API_MODERATIONS,
}


def _answers() -> WaitingBytes:
    return WaitingBytes(ANSWERS_BYTES, AnswersWaiting, "answers that are held")


class Own(Protocol):
    """The mesh's own service of a method. `others`: the models of providers that a request may name in its place."""

    async def __call__(self, exchange: Exchange, body: Fields | None = None, others: Sequence[str] = ()) -> None: ...


@dataclass(frozen=True, slots=True)
class Providers:
    """The models of providers, behind their policies. `answers`: the room for answers, which are held as a whole."""

    admission: EndpointAdmission
    fleet: Fleet
    models: Shared
    routes: Routes
    answers: WaitingBytes = field(default_factory=_answers)


@dataclass(frozen=True, slots=True)
class ByName:
    """Serves one method: by the model of a provider that the request names, else by the mesh's own service. Where that
    is missing (`has_own` false) or cannot read the request, the first model stands for `auto`."""

    method: Method
    providers: Providers
    own: Own
    has_own: bool

    async def __call__(self, exchange: Exchange) -> None:
        names = self.providers.admission.settings.models_of(self.method)
        if not names:
            await self.own(exchange)
            return
        written = await exchange.json()
        body = await exchange.read(written)
        name = body.text("model") or ANY[0]
        if name in ANY and (not self.has_own or _OF_TEI in body):
            name = names[0]
        if name in names:
            held = Held(self.providers.answers, exchange.credential.tenant.name)
            try:
                await self._forward(exchange, name, written, body, held)
            finally:
                held.give_back()
        elif self.has_own:
            await self.own(exchange, body, names)
        else:
            raise ModelUnknown(name, ", ".join((*names, *ANY)))

    async def _forward(self, exchange: Exchange, model: str, written: bytes, body: Fields, held: Held) -> None:
        tenant, began, report = exchange.credential.tenant, time.monotonic(), Report(Decisions())
        fields, order = {name: body.seen(name) for name in body}, _options(exchange.headers, body)
        tokens = len(written) // BYTES_PER_TOKEN
        async with self.providers.admission.admitted(exchange, tokens=tokens, order=order) as admitted:
            admitted.tokens = 0  # no model has read anything yet
            try:
                deadline = Deadline.after(admitted.timeout_s)
                for _ in provider_fields.check_body(fields, tenant.provider, tenant.name):
                    if deadline.is_over():
                        raise TooLate("the fields of the request were not checked within its budget")
                    await give_way(tenant.name)
                if checks := _checks_of(tenant.guard, order.request):
                    written = await _masked(written, fields, checks, tenant.name, deadline)
                request = llm_pb2.GenerateRequest(original=chat_pb2.Original(api=_APIS[self.method], body=written))
                rank = score(premium=tenant.premium, realtime=False, attempt=0)
                slot_request = SlotRequest(rank, tenant.name, tenant.weight, deadline)
                job = Job(
                    request=request,
                    models=(model,),
                    deadline=deadline,
                    slot_request=slot_request,
                    first_text=deadline,
                    report=report,
                    metadata=admitted.metadata,
                )
                answered, bill = await self._answer(job, admitted, held)
            except ServiceError as error:
                report.decisions.explain(error, began, exchange.trace_id)
                raise
            total_ms = (time.monotonic() - began) * 1000
            headers = [
                (b"x-hedgerow-model", report.model.encode()),
                (b"x-hedgerow-total-ms", b"%.1f" % total_ms),
                (b"x-hedgerow-cost-usd", b"%.8f" % bill.usd),
            ]
            await exchange.reply.whole(200, answered, headers)

    async def _answer(self, job: Job, admitted: Admitted, held: Held) -> tuple[bytes, Bill]:
        """The whole answer, whose bytes are `held`. A tenant is charged what models have read, however it ends. Raises
        `AnswersWaiting`."""
        pieces, bill = list[bytes](), Bill()
        self.providers.fleet.count_request(job.slot_request.tenant)
        reader = self.providers.models.read(b"", job, admitted.timeout_s).reader
        try:
            while items := await reader.take_and_drop():
                for piece in (piece for item in items for piece in item.relayed):
                    held.take(len(piece))
                    pieces.append(piece)
                if items[-1].HasField("finish"):
                    break
        finally:
            reader.close()
            estimate = len(job.request.original.body) // BYTES_PER_TOKEN
            bill = spending.book(job.report.unbilled(), self.providers.routes, lambda: estimate)
            admitted.tokens = bill.tokens
        return b"".join(pieces), bill


def _options(headers: Mapping[str, str], body: Fields) -> RequestOptions:
    """The options of a method without a conversation. Raises `InvalidInput` for an option of the body's `hedgerow` that
    these methods do not have, and for a check that the guard does not make here."""
    given = body.seen(_BODY)
    for name in given if isinstance(given, dict) else ():
        if name not in _TAKEN:
            raise InvalidInput(f"{_BODY}.{name}", f"one of {', '.join(_TAKEN)} for this method", "another option")
    order = RequestOptions(pb.GenerateRequest())
    take_options(order, headers, body)
    for check, _ in order.request.guard.ListFields():
        if check.name not in _OF_REQUESTS:
            raise InvalidInput(f"{_BODY}.guard", f"checks of {' and '.join(_OF_REQUESTS)} for this method", check.name)
    return order


def _checks_of(settings: GuardSettings, request: pb.GenerateRequest) -> Checks | None:
    """The guard's checks, where it looks for private data in requests."""
    checks = guard_checks(settings, request)
    return checks if checks and checks.masks else None


async def _masked(written: bytes, fields: Mapping[str, Any], checks: Checks, tenant: str, deadline: Deadline) -> bytes:
    """The body `written`, whose fields are `fields`, with names in the place of private data. Raises `GuardRefused`,
    `GuardLate`, and `InvalidInput` for tokens, which the guard cannot read."""
    masked_texts = dict[str, str]()
    scanner = ContentScanner(checks, Names(), deadline)
    try:
        for _ in _scan_fields(fields, scanner, masked_texts):
            await give_way(tenant)
    except RefusedText as refused:
        raise GuardRefused(f"guard: the request holds {refused.what}", rule=refused.rule) from None
    except Late:
        if checks.settings.late == "closed":
            raise GuardLate("guard: not done within the budget of the request", late="closed") from None
    if not masked_texts:
        return written

    def replaced() -> bytes:
        return compact(with_masks(dict(fields), masked_texts))

    return await asyncio.to_thread(replaced) if len(written) > _LARGE_BYTES else replaced()


def _scan_fields(
    fields: Mapping[str, Any], scanner: ContentScanner, masked_texts: dict[str, str]
) -> Generator[None, None, None]:
    """Fill `masked_texts` with the texts to replace, each with its replacement. Equal texts are read once."""
    seen, values = set[str](), 0
    for name, given in fields.items():
        for each in values_of(given):
            values += 1
            if values % VALUES_A_STEP == 0:
                scanner.in_time()
                yield
            if isinstance(each, list) and any(type(one) in (int, float) for one in each):
                raise InvalidInput(name, "texts in place of tokens, which the guard of requests cannot read", "numbers")
            if isinstance(each, str) and each and each not in seen:
                seen.add(each)
                shown = yield from scanner.without_private(each)
                if shown != each:
                    masked_texts[each] = shown
