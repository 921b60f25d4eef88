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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from importlib import import_module
from typing import ClassVar

import grpc

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.ledger import Running
from services.gateway.answer.registry import STAGES
from services.gateway.answer.stages.stage import AnswerStage, BesideStage
from services.gateway.labels import Act
from services.gateway.settings.budgets import StageBudget
from services.runtime.security.tls import Dial

Connect = Callable[[str, str], Awaitable[grpc.aio.Channel]]
_LONGEST_NAME = 32
_log = logging.getLogger("services.gateway")


class BadStage(Exception):
    """A stage that cannot be loaded. The text names it."""


class OwnStage(BesideStage):
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

    def start(self) -> None:
        self.begin(self._work())

    async def _work(self) -> None:
        draft, ledger = self.draft, self.draft.ledger
        with ledger.stage(self.name) as stage:
            if not ledger.worth_starting(self.name, stage):
                draft.miss(f"{self.name}:budget")
                return
            try:
                async with asyncio.timeout(stage.budget_s):
                    lines = await self.look(draft.question.request, stage.budget_s)
            except Exception as error:
                self._fall_back(error, stage)
            else:
                draft.inputs.add_context(lines)
                stage.detail = f"lines of context: {len(lines)}"

    def _fall_back(self, error: Exception, stage: Running) -> None:
        """The answer can do without."""
        late = isinstance(error, TimeoutError)
        if isinstance(error, grpc.aio.AioRpcError):
            late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        if late:
            stage.outcome, stage.detail = pb.STAGE_OUTCOME_OVERRUN, f"longer than its {stage.budget_s * 1000:.0f} ms"
        else:
            _log.warning("stage %s failed", self.name, exc_info=error)
            stage.outcome, stage.detail = pb.STAGE_OUTCOME_FAILED, type(error).__name__
        self.draft.ledger.decide(Act.BUDGET_SKIPPED if late else Act.FALLBACK_SKIPPED, self.name, stage.detail)
        self.draft.miss(f"{self.name}:{'budget' if late else 'unavailable'}")


async def opened(places: Sequence[str], dial: Dial, stack: AsyncExitStack) -> Mapping[str, type[AnswerStage]]:
    """The stages of answers, with those at `places`, whose channels are open until `stack` is left. Raises
    `BadStage`."""

    async def connect(address: str, identity: str) -> grpc.aio.Channel:
        return await stack.enter_async_context(dial(address, identity))

    stages = load(places)
    for stage in stages.values():
        if issubclass(stage, OwnStage):
            await stage.open(connect)
    return stages


def load(places: Sequence[str], known: Mapping[str, type[AnswerStage]] = STAGES) -> Mapping[str, type[AnswerStage]]:
    """The stages of an answer, with those at `places` (`package.module:Class`). Raises `BadStage`."""
    stages = dict(known)
    for place in places:
        stages = _placed(_found(place), place, stages)
    return stages


def _found(place: str) -> type[AnswerStage]:
    module, _, name = place.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadStage(f"own_stages: package.module:Class, got {place}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, AnswerStage)):
        raise BadStage(f"own_stages: a subclass of OwnStage, got {place}")
    return found


def _placed(stage: type[AnswerStage], place: str, stages: dict[str, type[AnswerStage]]) -> dict[str, type[AnswerStage]]:
    """`stages`, with this one in front of the first of those that wait for it."""
    name = getattr(stage, "name", "")
    if not (name.isidentifier() and name.islower() and len(name) <= _LONGEST_NAME) or name in stages:
        raise BadStage(f"own_stages: {place}: a name of its own, of lower case, at most {_LONGEST_NAME}, got {name!r}")
    if unknown := {*stage.after, *stage.before} - stages.keys():
        raise BadStage(f"own_stages: {place}: stages out of {', '.join(stages)}, got {', '.join(sorted(unknown))}")
    order = list(stages)
    at = min((order.index(each) for each in stage.before), default=len(order))
    if late := [each for each in stage.after if order.index(each) >= at]:
        raise BadStage(f"own_stages: {place}: it cannot be after {late[0]} and before {order[at]}")
    return {each: stages.get(each, stage) for each in (*order[:at], name, *order[at:])}
