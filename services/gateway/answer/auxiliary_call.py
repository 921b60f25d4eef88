"""Calls to a model beside an answer: the prompt and reply of a judge, and the cost of a generation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission.question import prompt_tokens
from services.gateway.generation.job import Report
from services.gateway.upstream import spending
from services.gateway.upstream.routes import Routes
from services.gateway.upstream.spending import Bill
from services.runtime.errors import shorten

_JUDGE = "Is your last answer right, complete and to the point? Say yes or no, and nothing else."
_YES = re.compile(r"\W*yes\b", re.IGNORECASE)
_NO = re.compile(r"\W*no\b", re.IGNORECASE)


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


def to_judge(conversation: Iterable[chat_pb2.Message], answer: str) -> Iterator[chat_pb2.Message]:
    """The conversation for a judge. It begins like the answered one, so an engine can reuse its cached prefix."""
    yield from conversation
    yield chat_pb2.Message(role=chat_pb2.ROLE_ASSISTANT, content=answer)
    yield chat_pb2.Message(role=chat_pb2.ROLE_USER, content=_JUDGE)


def verdict(said: str) -> bool | None:
    """What a judge says of an answer: whether it is right; None where that is not clear."""
    return True if _YES.match(said) else False if _NO.match(said) else None


def objection(said: str) -> str:
    """Why a judge is against an answer; empty where it is for it."""
    return "" if _YES.match(said) else f"the judge says {shorten(said.strip(), 20)!r}"
