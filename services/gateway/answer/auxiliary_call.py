"""Calls to a model beside an answer, such as a summary or a judgement, and the cost of a generation.

An auxiliary call has the priority of a batch, one attempt and a bounded time, and no client waits for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import BYTES_PER_TOKEN, prompt_tokens
from services.gateway.decisions import Decisions
from services.gateway.generation.job import Job, Report
from services.gateway.generation.shared import Shared
from services.gateway.policies.ticket import Ticket, score
from services.gateway.upstream import spending
from services.gateway.upstream.routes import Routes
from services.gateway.upstream.spending import Bill
from services.runtime.deadline import Deadline
from services.runtime.errors import shorten
from services.runtime.telemetry import Metadata

_JUDGE = "Is your last answer right, complete and to the point? Say yes or no, and nothing else."
_YES = re.compile(r"\W*yes\b", re.IGNORECASE)
_NO = re.compile(r"\W*no\b", re.IGNORECASE)


async def ask(
    models: Shared,
    routes: Routes,
    tenant: Tenant,
    model: str,
    messages: Sequence[chat_pb2.Message],
    *,
    max_tokens: int,
    within_s: float,
    metadata: Metadata = (),
) -> str:
    """The text of `model`, at a temperature of 0. The metrics count its cost, and `tenant` its place at the limiter.
    Raises `ServiceError` where the model does not end its text in time."""
    deadline = Deadline.after(within_s)
    request = llm_pb2.GenerateRequest(
        messages=messages,
        sampling=chat_pb2.Sampling(max_tokens=max_tokens, temperature=0),
        cache_salt=tenant.prefix_salt,
    )
    rank = score(premium=False, realtime=False, attempt=0, batch=True)
    ticket = Ticket(rank, tenant.name, tenant.weight, deadline, placed=lambda: None)
    report = Report(Decisions())
    job = Job(request, (model,), deadline, ticket, deadline, report, metadata, once=True)
    reader, said = models.read(b"", job, deadline.remaining()).reader, ""
    try:
        while items := await reader.take():
            said += "".join(item.text for item in items)
            if items[-1].HasField("finish"):
                break
    finally:
        reader.leave()
        book(report, request, routes)
    return said


def book(report: Report, request: llm_pb2.GenerateRequest, routes: Routes) -> Bill:
    """Book a generation that is over, once: the usage of each call, at the price of its model. It includes every prompt
    that a model has read, however the answer ended, and the text written. All readers of a generation are of one
    tenant: the first one to settle is charged."""
    if report.booked:
        return Bill()
    report.booked, calls = True, [call for call in report.calls if call.has_read]
    counted = max((call.asked_tokens() for call in calls), default=0)
    prompt = counted or _estimated_tokens(request)
    bills = [spending.count(call.pool.model, routes.model(call.pool.model), call.used(prompt)) for call in calls]
    return Bill(sum(bill.tokens for bill in bills), sum(bill.usd for bill in bills))


def _estimated_tokens(request: llm_pb2.GenerateRequest) -> int:
    """Of a request without a conversation, by the size of its body."""
    if request.messages:
        return prompt_tokens(request.messages, request.tools)
    return len(request.original.body) // BYTES_PER_TOKEN


def to_judge(conversation: Iterable[chat_pb2.Message], answer: str) -> Iterator[chat_pb2.Message]:
    """The conversation for a judge. It begins like the answered one, so an engine can reuse its cached prefix."""
    yield from conversation
    yield chat_pb2.Message(role=chat_pb2.ROLE_ASSISTANT, content=answer)
    yield chat_pb2.Message(role=chat_pb2.ROLE_USER, content=_JUDGE)


def verdict(said: str) -> bool | None:
    """Whether the judge says that the answer is right; None where its reply is unclear."""
    return True if _YES.match(said) else False if _NO.match(said) else None


def objection(said: str) -> str:
    """The objection of a judge to an answer; empty without one."""
    return "" if _YES.match(said) else f"the judge says {shorten(said.strip(), 20)!r}"
