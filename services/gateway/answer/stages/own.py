"""Stages of a deployment's own: a class that adds lines to the context of a question, named by its place.

    class AccountStage(OwnStage):
        name = "account"

        async def look(self, request, budget_s):
            return [f"plan: {await plan_of(request.end_user)}"]

It has a slice of the budget as every stage. Without lines in time the answer goes on, marked as degraded, and no other
caller shares it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

import grpc

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question
from services.gateway.answer.backends import Backends
from services.gateway.answer.ledger import Running
from services.gateway.answer.stages.stage import AnswerStage
from services.gateway.labels import Act
from services.gateway.settings.answer_time import StageBudget
from services.runtime.deadline import Deadline

Connect = Callable[[str, str], Awaitable[grpc.aio.Channel]]
_log = logging.getLogger("services.gateway")


class OwnStage(AnswerStage):
    """Subclass it: `name`, `look`, and where the defaults do not fit `budget`, `after`, `before` and `wanted`.

    `after`: stages of the gateway that it waits for; `before`: those that wait for it. A stage that adds context comes
    before the cache, because context is a part of the question.
    """

    budget = StageBudget(share=0.1, cap_ms=100)
    before: ClassVar[tuple[str, ...]] = ("guard", "cache", "tools", "prompt", "cascade", "agent", "llm")

    @classmethod
    async def open(cls, connect: Connect) -> None:
        """Called once, before the gateway serves. `connect(address, identity)` gives a channel with the gateway's own
        certificate, which is closed with the gateway; `identity` is that in the certificate of the other side."""

    async def look(self, request: pb.GenerateRequest, budget_s: float) -> Sequence[str]:
        """Lines for the context of the question. Cancelled after `budget_s`. An exception is logged, and the answer
        continues without the lines."""
        raise NotImplementedError

    async def run(self) -> None:
        context, ledger = self.context, self.context.ledger
        with ledger.stage(self.name) as stage:
            if not ledger.worth_starting(self.name, stage):
                context.mark_incomplete(f"{self.name}:budget")
                return
            deadline = Deadline.after(stage.budget_s)
            try:
                async with asyncio.timeout(stage.budget_s):
                    lines = await self.look(context.question.request, stage.budget_s)
            except Exception as error:
                self._fall_back(error, stage, deadline)
            else:
                context.inputs.add_context(lines)
                stage.detail = f"lines of context: {len(lines)}"

    def _fall_back(self, error: Exception, stage: Running, deadline: Deadline) -> None:
        """The answer can do without. A failure at the deadline is late: the service may have cancelled there first."""
        late = isinstance(error, TimeoutError) or deadline.is_over()
        if isinstance(error, grpc.aio.AioRpcError):
            late = late or error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        if late:
            stage.outcome, stage.detail = pb.STAGE_OUTCOME_OVERRUN, f"longer than its {stage.budget_s * 1000:.0f} ms"
        else:
            _log.warning("stage %s failed", self.name, exc_info=error)
            stage.outcome, stage.detail = pb.STAGE_OUTCOME_FAILED, type(error).__name__
        self.context.ledger.decide(Act.BUDGET_SKIPPED if late else Act.FALLBACK_SKIPPED, self.name, stage.detail)
        self.context.mark_incomplete(f"{self.name}:{'budget' if late else 'unavailable'}")


class ServiceStage(OwnStage):
    """A stage that asks a service of the mesh, whose identity is the stage's name, over `channel`. Requests have it
    where the setting `stage_addresses` has that name."""

    channel: ClassVar[grpc.aio.Channel | None] = None

    @classmethod
    def wanted(cls, question: Question, tenant: Tenant, backends: Backends) -> bool:
        return cls.channel is not None
