"""What a generation has cost: in the metrics, and for the account of whoever settles it."""

from __future__ import annotations

from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission.question import prompt_tokens
from services.gateway.generation.job import Report
from services.gateway.upstream import spending
from services.gateway.upstream.routes import Routes
from services.gateway.upstream.spending import Bill


def book(report: Report, request: llm_pb2.GenerateRequest, routes: Routes) -> Bill:
    """Book a generation that is over, once: what every call has used, each at its own model's price. That is every
    prompt that a model has read, however the answer ended, and what was written. Readers of one generation are one
    tenant's: the first that is there pays, and the others find it booked."""
    if report.booked:
        return Bill()
    report.booked, calls = True, [call for call in report.calls if call.has_read]
    counted = max((call.asked_tokens() for call in calls), default=0)
    prompt = counted or prompt_tokens(request.messages, request.tools)
    bills = [spending.count(call.pool.model, routes.model(call.pool.model), call.used(prompt)) for call in calls]
    return Bill(sum(bill.tokens for bill in bills), sum(bill.usd for bill in bills))
