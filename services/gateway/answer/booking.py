"""What a generation has cost and is on no account yet: in the metrics, and for the account of whoever settles it.

Readers of one generation are one tenant's. Each books what its calls have cost since the last of them did, so all of
them together book each call once, also where the one that started it leaves first.
"""

from __future__ import annotations

from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission.question import prompt_tokens
from services.gateway.generation.job import Report
from services.gateway.upstream import spending
from services.gateway.upstream.routes import Routes
from services.gateway.upstream.spending import NOTHING, Bill


def book(report: Report, request: llm_pb2.GenerateRequest, routes: Routes) -> Bill:
    """Count what every call of a generation has used by now, at its own model's price. Returns what was not booked
    before: every prompt that a model has read, however the answer ended, and what was written."""
    calls, owed = [call for call in report.calls if call.has_read], NOTHING
    counted = max((call.asked_tokens() for call in calls), default=0)
    prompt = counted or prompt_tokens(request.messages, request.tools)
    for call in calls:
        model = call.pool.model
        now = spending.bill(routes.model(model), call.used(prompt))
        more, call.booked = now.since(call.booked), now.at_least(call.booked)
        spending.count(model, more)
        owed = owed.plus(more)
    return owed
