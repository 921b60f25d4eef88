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
from services.gateway.answer.ledger import Running
from services.gateway.answer.stages import tool_call
from services.gateway.answer.stages.stage import AnswerStage, Work
from services.gateway.answer.stages.tool_call import ToolRun
from services.gateway.labels import Act, Degraded
from services.gateway.tools.toolbox import SILENT_SOURCE, Beforehand, RequestTools


class ToolsStage(AnswerStage):
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
                context.mark_incomplete(Degraded.TOOLS_BUDGET)
                context.inputs.take_results([(each.name, f"{each.name} has not answered in time.") for each in wanted])
                return
            runs = [self._begin(each, request_tools, stage) for each in wanted]
            self._runs = [run for run in runs if isinstance(run, ToolRun)]
            await asyncio.gather(*(run.end() for run in self._runs))
            said = [run.text if isinstance(run, ToolRun) else run for run in runs]
            context.inputs.take_results([(each.name, text) for each, text in zip(wanted, said, strict=True)])
            in_time = sum(run.running.outcome == pb.STAGE_OUTCOME_OK for run in self._runs)
            stage.detail = f"{in_time} of {len(wanted)} answered"

    def _begin(self, wanted: Beforehand, request_tools: RequestTools, stage: Running) -> ToolRun | str:
        """The call of a tool, or the note for one that is not called: its source has not listed it, or the question is
        too large for its argument."""
        context, most = self.context, request_tools.toolbox.settings.max_arguments_bytes
        if wanted.tool is None:
            context.mark_incomplete(Degraded.TOOLS_UNAVAILABLE)
            context.ledger.decide(Act.TOOL_UNAVAILABLE, wanted.name, SILENT_SOURCE)
            return f"{wanted.name} could not be reached."
        arguments = wanted.with_question(context.inputs.asked.question)
        if wanted.arguments is None and (size := len(arguments.encode())) > most:
            context.mark_incomplete(Degraded.TOOLS_LIMITED)
            context.ledger.decide(Act.TOOL_REFUSED, wanted.name, f"arguments: at most {most} bytes, got {size}")
            return f"{wanted.name} was not called: the question is too long for it."
        return tool_call.begin(context, request_tools, wanted.tool, arguments, stage.budget_s, stage.span)
