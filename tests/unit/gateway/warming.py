"""A gateway's warm-up of prompts, before scripted models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Identity
from services.gateway.api import reports_and_warmup
from services.gateway.prefix_warmup import PrefixWarmup
from services.gateway.settings.tenants import TenantSettings
from services.gateway.upstream.fleet import Fleet
from tests.clock import loop_clock
from tests.unit.gateway.scripted import ScriptedLlm, ScriptedRoutes, finish, fleet, text
from tests.unit.gateway.shared_settings import gateway_settings

LONG = "".join(
    f"Answer number {number} is told as page {number} of the manual has it. " for number in range(20)
).strip()


KEPT = {"support": {"version": "3", "default": LONG, "simple": "Answer in one sentence."}, "other": {"default": "Hm."}}


def llm(pause_s: float = 0.01) -> ScriptedLlm:
    return ScriptedLlm(pause_s, text("I"), finish())


class Scene:
    """A gateway's warming, before scripted models."""

    def __init__(self, tenants: dict[str, Any] | None = None, warm: dict[str, Any] | None = None, **llms: Any):
        settings = {
            "system_prompts": KEPT,
            "warm": {"prompts": ["support"], "every_ms": 60_000, **(warm or {})},
            "limit": {"algorithm": "fixed", "initial": 4},
        }
        self.fleet: Fleet = fleet(loop_clock, settings, **llms)
        self.settings = gateway_settings(llm_addresses={"small": "unused"}, **settings)
        self.identity = Identity({n: TenantSettings(**own) for n, own in (tenants or {}).items()}, None, anonymous=True)
        self.routes = ScriptedRoutes(names=tuple(llms))
        self.warming = PrefixWarmup(self.settings, self.fleet, self.routes, self.identity, loop_clock)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.warming.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def ran(self, seconds: float = 5) -> None:
        async with self.running():
            await asyncio.sleep(seconds)

    async def warmed(self, *names: str) -> list[pb.WarmResponse]:
        request = pb.WarmRequest(system_prompts=names)
        return [each async for each in reports_and_warmup.warm_up(request, self.identity.tenant(None), self.warming)]


def read(model: ScriptedLlm) -> list[tuple[str, str]]:
    """The prompts that a model was asked to read, and for which salt."""
    return [(asked.messages[0].content, asked.cache_salt) for asked in model.requests]
