"""Calls beside answers: reports of wrong cache answers, and warm-up."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.control import AdmissionControl
from services.gateway.admission.identity import Tenant
from services.gateway.admission.quota import REQUEST
from services.gateway.errors import WarmDenied
from services.gateway.prefix_warmup import PrefixWarmup, WarmupStep
from services.gateway.upstream.cache import Cache
from services.gateway.upstream.calls import whose
from services.runtime import telemetry
from services.runtime.errors import InvalidInput, NotSupported, shorten
from services.runtime.rpc.boundary import Call

_LONGEST_S = 10.0
_KEY = re.compile(r"[0-9a-f]{64}")
_MOST_NAMED = 100
_KINDS = {"connection": pb.WARM_KIND_CONNECTION, "engine": pb.WARM_KIND_ENGINE, "prompt": pb.WARM_KIND_PROMPT}


async def report_wrong(
    request: pb.ReportWrongRequest, tenant: Tenant, call: Call, cache: Cache | None, admission: AdmissionControl
) -> pb.ReportWrongResponse:
    """Have the cache know; a request of the tenant's quota. Raises `QuotaExceeded`, and what the cache does."""
    if cache is None:
        raise NotSupported("there is no cache service behind this gateway")
    report = to_report(request.key, request.question if request.HasField("question") else None, tenant.name)
    within_s = min(call.deadline.remaining(), _LONGEST_S)
    reservation = await admission.hold(tenant, telemetry.trace_id(call.span), within_s, REQUEST)
    try:
        metadata = (*telemetry.propagate(call.span), whose(tenant.name))
        return pb.ReportWrongResponse(tightened=await cache.report(report, within_s, metadata))
    finally:
        reservation.settle(0)


def to_report(key: str, question: str | None, tenant: str) -> cache_pb2.ReportVerdictRequest:
    """The report to the cache. Raises `InvalidInput`."""
    if not _KEY.fullmatch(key):
        raise InvalidInput("key", "64 hexadecimal digits in lower case", shorten(key))
    report = cache_pb2.ReportVerdictRequest(tenant=tenant, key=key)
    if question is not None:
        if not question.strip():
            raise InvalidInput("question", "text other than white space", f"{len(question)} characters")
        report.question.messages.add(role=chat_pb2.ROLE_USER, content=question)
    return report


async def warm_up(
    request: pb.WarmRequest, tenant: Tenant, warming: PrefixWarmup
) -> AsyncGenerator[pb.WarmResponse, None]:
    """Warm up, one response for each step. Raises `WarmDenied` for a tenant without the permission."""
    if not tenant.warm:
        raise WarmDenied("warm: for tenants whose setting `warm` is true")
    if len(request.system_prompts) > _MOST_NAMED:
        raise InvalidInput("system_prompts", f"at most {_MOST_NAMED}", len(request.system_prompts))
    async with aclosing(warming.now(tenant, list(dict.fromkeys(request.system_prompts)))) as steps:
        async for step in steps:
            yield _warm_response(step)


def _warm_response(step: WarmupStep) -> pb.WarmResponse:
    return pb.WarmResponse(
        kind=_KINDS[step.kind],
        replica=step.replica,
        prompt=step.prompt,
        took_ms=step.took_s * 1000,
        before_ms=None if step.before_s is None else step.before_s * 1000,
        after_ms=None if step.after_s is None else step.after_s * 1000,
        problem=step.problem,
    )
