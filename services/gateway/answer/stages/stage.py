"""The interface of a stage: a claim on the budget, and its work."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question
from services.gateway.answer.backends import Backends
from services.gateway.answer.draft import Draft
from services.gateway.settings.answer_time import StageBudget


class AnswerStage:
    """One stage of one answer. `budget`: its claim, where the settings have none; `after`: the stages it waits for;
    `before`: the stages that wait for it, beside those that list it in `after`."""

    name: ClassVar[str]
    budget: ClassVar[StageBudget] = StageBudget(share=0.1, cap_ms=100)
    after: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[tuple[str, ...]] = ()
    waits: ClassVar[bool] = True  # whether it waits for anything once it has started
    closing: ClassVar[bool] = False  # whether it runs last, for a complete answer, which it may replace

    def __init__(self, draft: Draft):
        self.draft = draft

    @classmethod
    def wanted(cls, question: Question, tenant: Tenant, backends: Backends) -> bool:
        """Whether the answer to a question has this stage."""
        return True

    @classmethod
    def required(cls, question: Question) -> bool:
        """Whether no answer is possible without it: then no time is kept from it."""
        return False

    def start(self) -> None:
        """Begin, without waiting. A stage that works concurrently starts a task."""

    @property
    def answers_at_once(self) -> bool:
        """Whether `run` completes the answer without waiting for others: no other stage needs to start then."""
        return False

    def is_ready(self) -> bool:
        """Whether `run` would end without waiting for other stages; asked while others are under way. A stage that is
        not ready sets `draft.beside.stirred` when it may be."""
        return True

    async def run(self) -> None:
        """Wait for the stage. Raises errors that end the answer."""

    def patches(self) -> Sequence[pb.Patch]:
        """Results that came after the time of the stage was over; each once."""
        return ()

    def after_final(self, final: pb.Final) -> None:
        """Called once the client has everything."""

    def leave(self) -> None:
        """Release everything: the answer is over."""


class BesideStage(AnswerStage):
    """A stage whose `work`, a task, runs concurrently with others."""

    def __init__(self, draft: Draft):
        super().__init__(draft)
        self.work: asyncio.Task[None] | None = None

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.work = asyncio.create_task(work)
        self.work.add_done_callback(retrieve)
        stirred = self.draft.beside.stirred
        self.work.add_done_callback(lambda _: stirred.set())
        self.draft.beside.working.add(self.work)

    def is_ready(self) -> bool:
        return self.work is None or self.work.done()

    async def run(self) -> None:
        if self.work:
            await self.draft.beside.done(self.work)

    def leave(self) -> None:
        if self.work:
            self.work.cancel()


def retrieve(task: asyncio.Task[Any]) -> None:
    """Fetch its exception, so that a failure without a waiter is not logged."""
    with suppress(asyncio.CancelledError):
        task.exception()
