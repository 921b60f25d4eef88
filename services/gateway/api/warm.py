"""Warming, as the contract tells it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.errors import WarmDenied
from services.gateway.prefix_warmup import PrefixWarmup, Step
from services.runtime.errors import InvalidInput

_MOST_NAMED = 100
_KINDS = {"connection": pb.WARM_KIND_CONNECTION, "engine": pb.WARM_KIND_ENGINE, "prompt": pb.WARM_KIND_PROMPT}


async def responses(
    request: pb.WarmRequest, tenant: Tenant, warming: PrefixWarmup
) -> AsyncGenerator[pb.WarmResponse, None]:
    """What is done, step by step. Raises `WarmDenied` for a tenant that may not."""
    if not tenant.warm:
        raise WarmDenied("warm: for tenants whose setting `warm` is true")
    if len(request.system_prompts) > _MOST_NAMED:
        raise InvalidInput("system_prompts", f"at most {_MOST_NAMED}", len(request.system_prompts))
    async with aclosing(warming.now(tenant, list(dict.fromkeys(request.system_prompts)))) as steps:
        async for step in steps:
            yield _told(step)


def _told(step: Step) -> pb.WarmResponse:
    return pb.WarmResponse(
        kind=_KINDS[step.kind],
        replica=step.replica,
        prompt=step.prompt,
        took_ms=step.took_s * 1000,
        before_ms=None if step.before_s is None else step.before_s * 1000,
        after_ms=None if step.after_s is None else step.after_s * 1000,
        problem=step.problem,
    )
