"""What a tenant says of the cache's answers: one was wrong for what it had asked."""

from __future__ import annotations

import re

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.control import AdmissionControl
from services.gateway.admission.identity import Tenant
from services.gateway.admission.quota import REQUEST
from services.gateway.upstream.stubs import Cache, whose
from services.runtime import telemetry
from services.runtime.errors import InvalidInput, NotSupported, shorten
from services.runtime.rpc.boundary import Call

_LONGEST_S = 10.0
_KEY = re.compile(r"[0-9a-f]{64}")


async def report_wrong(
    request: pb.ReportWrongRequest, tenant: Tenant, call: Call, cache: Cache | None, admission: AdmissionControl
) -> pb.ReportWrongResponse:
    """Have the cache know; a request of the tenant's quota. Raises `QuotaExceeded`, and what the cache does."""
    if cache is None:
        raise NotSupported("there is no cache service behind this gateway")
    report = to_report(request.key, request.question if request.HasField("question") else None, tenant.name)
    within_s = min(call.deadline.remaining(), _LONGEST_S)
    place = await admission.hold(tenant, telemetry.trace_id(call.span), within_s, REQUEST)
    try:
        metadata = (*telemetry.propagate(call.span), whose(tenant.name))
        return pb.ReportWrongResponse(tightened=await cache.report(report, within_s, metadata))
    finally:
        place.settle(0)


def to_report(key: str, question: str | None, tenant: str) -> cache_pb2.ReportVerdictRequest:
    """What the cache is told. Raises `InvalidInput`."""
    if not _KEY.fullmatch(key):
        raise InvalidInput("key", "64 hexadecimal digits in lower case", shorten(key))
    report = cache_pb2.ReportVerdictRequest(tenant=tenant, key=key)
    if question is not None:
        if not question.strip():
            raise InvalidInput("question", "text other than white space", f"{len(question)} characters")
        report.question.messages.add(role=chat_pb2.ROLE_USER, content=question)
    return report
