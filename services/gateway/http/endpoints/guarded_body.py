"""The guard's look at a body that goes to a provider in its caller's own words.

It works in steps, between which the event loop runs: a body may have a million texts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from typing import Any

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.provider_fields import values_of
from services.gateway.answer.original_body import masked_in
from services.gateway.errors import GuardLate, GuardRefused
from services.gateway.guard.checks import Checks, guard_checks
from services.gateway.guard.screen import ContentScanner, Late, RefusedText
from services.gateway.http.sse import compact
from services.gateway.settings.guard import GuardSettings
from services.runtime.aside import give_way
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput
from services.runtime.security.private_data import Names

VALUES_A_STEP = 64
_LARGE_BYTES = 64 * 1024  # replaced in a thread: a million values take 1 s


def checks_of(settings: GuardSettings, request: pb.GenerateRequest) -> Checks | None:
    """The guard's checks, where it looks for private data in requests."""
    checks = guard_checks(settings, request)
    return checks if checks and checks.masks else None


async def masked(written: bytes, fields: Mapping[str, Any], checks: Checks, tenant: str, deadline: Deadline) -> bytes:
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
        return compact(masked_in(dict(fields), masked_texts))

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
