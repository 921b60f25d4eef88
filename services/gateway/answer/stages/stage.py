"""The interface of a stage: a claim on the budget, and its work."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, ClassVar

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question
from services.gateway.answer.backends import Backends
from services.gateway.answer.context import RequestContext
from services.gateway.answer.results import Result
from services.gateway.settings.answer_time import StageBudget

Work = Coroutine[Any, Any, Result | None]


class AnswerStage:
    """One stage of one answer. `budget`: its claim, where the settings have none; `after`: the stages it waits for;
    `before`: the stages that wait for it, beside those that list it in `after`."""

    name: ClassVar[str]
    budget: ClassVar[StageBudget] = StageBudget(share=0.1, cap_ms=100)
    after: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[tuple[str, ...]] = ()
    closing: ClassVar[bool] = False  # whether it runs last, for a complete answer, which it may replace

    def __init__(self, context: RequestContext):
        self.context = context

    @classmethod
    def wanted(cls, question: Question, tenant: Tenant, backends: Backends) -> bool:
        """Whether the answer to a question has this stage."""
        return True

    @classmethod
    def required(cls, question: Question) -> bool:
        """Whether no answer is possible without it: then no time is kept from it."""
        return False

    async def start(self) -> Work | Result | None:
        """Do what waits for nothing. Returns the rest, which runs beside other stages, or the result where there is no
        more to do."""
        return self.run()

    async def run(self) -> Result | None:
        """Do the work. Returns the result for later stages; `Done` ends the answer. Raises errors that end it without
        text. Cancelled where another stage ends it."""

    def patches(self) -> Sequence[pb.Patch]:
        """Results that came after the time of the stage was over; each once."""
        return ()

    def after_final(self, final: pb.Final) -> None:
        """Called once the client has everything."""

    def leave(self) -> None:
        """Release everything: the answer is over."""
