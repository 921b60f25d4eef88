"""Calls to a model beside an answer, such as a summary or a judgement.

A background call has the priority of a batch, one attempt and a bounded time, and no client waits for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import prompt_tokens
from services.gateway.decisions import Decisions
from services.gateway.generation.job import Job, Report
from services.gateway.generation.shared import Shared
from services.gateway.policies.slot import SlotRequest
from services.gateway.upstream import spending
from services.gateway.upstream.router import Routes
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
    """The text of `model`, at a temperature of 0. The metrics count its cost, and `tenant` its slot at the limiter.
    Raises `ServiceError` where the model does not end its text in time."""
    deadline = Deadline.after(within_s)
    request = llm_pb2.GenerateRequest(
        messages=messages,
        sampling=chat_pb2.Sampling(max_tokens=max_tokens, temperature=0),
        cache_salt=tenant.prefix_salt,
    )
    report = Report(Decisions())
    job = Job(
        request=request,
        models=(model,),
        deadline=deadline,
        slot_request=SlotRequest.background(tenant.name, tenant.weight, deadline),
        first_text=deadline,
        report=report,
        metadata=metadata,
        single_attempt=True,
    )
    reader, said = models.read(b"", job, deadline.remaining()).reader, ""
    try:
        while items := await reader.take():
            said += "".join(item.text for item in items)
            if items[-1].HasField("finish"):
                break
    finally:
        reader.close()
        spending.book(report.unbilled(), routes, partial(prompt_tokens, messages))
    return said


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
