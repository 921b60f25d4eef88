"""Tools that are called before any model: all at once, beside the choice of a model.

Each tool has its own time. A result within it is put before the question, as data; a late or failed tool is named in a
line instead. A late call continues: when it ends before the answer does, its result comes as a patch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question
from services.gateway.answer.backends import Backends
from services.gateway.answer.context import RequestContext
from services.gateway.answer.stages import tool_call
from services.gateway.answer.stages.stage import AnswerStage, Work
from services.gateway.answer.stages.tool_call import ToolRun
from services.gateway.labels import Act, Degraded
from services.gateway.tools.toolbox import Beforehand, RequestTools


class ToolsStage(AnswerStage):
    """Calls the tools."""

    name, after = "tools", ("audio", "guard")  # they read the question as a model does

    def __init__(self, context: RequestContext):
        super().__init__(context)
        self._runs: list[ToolRun] = []

    @classmethod
    def wanted(cls, question: Question, tenant: Tenant, backends: Backends) -> bool:
        return any(not (each.offered or each.source) for each in question.request.mesh_tools)

    async def start(self) -> Work | None:
        return self._call_all(self.context.request_tools) if self.context.request_tools else None

    def patches(self) -> Sequence[pb.Patch]:
        return [patch for run in self._runs if (patch := run.patch())]

    def leave(self) -> None:
        for run in self._runs:
            run.leave()

    async def _call_all(self, request_tools: RequestTools) -> None:
        context, wanted = self.context, request_tools.beforehand
        with context.ledger.stage(self.name) as stage:
            if not context.ledger.worth_starting(self.name, stage):
                context.miss(Degraded.TOOLS_BUDGET)
                context.inputs.take_results([(each.name, f"{each.name} has not answered in time.") for each in wanted])
                return
            asked = context.inputs.asked.question
            runs = [
                tool_call.begin(
                    context, request_tools, each.tool, each.with_question(asked), stage.budget_s, stage.span
                )
                if each.tool
                else None
                for each in wanted
            ]
            self._runs = [run for run in runs if run]
            await asyncio.gather(*(run.end() for run in self._runs))
            results = [
                (each.name, run.text if run else self._unknown(each)) for each, run in zip(wanted, runs, strict=True)
            ]
            context.inputs.take_results(results)
            in_time = sum(run.running.outcome == pb.STAGE_OUTCOME_OK for run in self._runs)
            stage.detail = f"{in_time} of {len(wanted)} answered"

    def _unknown(self, wanted: Beforehand) -> str:
        """The note for a tool whose source has not listed it."""
        self.context.miss(Degraded.TOOLS_UNAVAILABLE)
        self.context.ledger.decide(Act.TOOL_UNAVAILABLE, wanted.name, "no connected source has listed it")
        return f"{wanted.name} could not be reached."
