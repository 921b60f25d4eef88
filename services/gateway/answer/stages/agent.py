"""A model that may call tools of the mesh: it is asked what to call, the gateway calls that, and it is asked again.

It ends as soon as one of these is so, and then the model's own stage asks for an answer without tools of the mesh:

- it has been asked as often, or has had as many calls, as it may;
- it makes a call that it has made before;
- the stage's time is over: what is left of the budget is for the answer.

Where the one that is asked answers in words, these are the answer, as they come. In a cascade the fast model is asked
what to call, and the better one answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question
from services.gateway.admission.tools import OBJECT, is_object, offers_mesh_tools
from services.gateway.answer.backends import Backends
from services.gateway.answer.context import RequestContext
from services.gateway.answer.ledger import Running
from services.gateway.answer.prompt_builder import as_data
from services.gateway.answer.results import Done
from services.gateway.answer.stages import tool_call
from services.gateway.answer.stages.agent_step import AgentStep
from services.gateway.answer.stages.stage import AnswerStage
from services.gateway.answer.stages.tool_call import ToolRun
from services.gateway.labels import Act, Degraded
from services.gateway.tools.toolbox import SILENT_SOURCE, RequestTools, canonical
from services.runtime import strict_json
from services.runtime.deadline import Deadline
from services.runtime.errors import ServiceError, TooLate

_LEAST_S = 0.005  # in less no model chooses and no tool answers


class AgentStage(AnswerStage):
    """Has a model choose calls, and makes them."""

    name, after = "agent", ("audio", "vision", "guard", "cache", "router", "tools", "prompt")

    def __init__(self, context: RequestContext):
        super().__init__(context)
        self._runs: list[ToolRun] = []
        self._made = set[tuple[str, str]]()  # calls, by name and arguments
        self._asked = 0  # calls that the model wanted
        self._outcomes: dict[str, str | ToolRun] = {}  # of its last turn by their ids: the call, or why it is not made
        self._over = False

    @classmethod
    def wanted(cls, question: Question, tenant: Tenant, backends: Backends) -> bool:
        return offers_mesh_tools(question.request)

    async def run(self) -> Done | None:
        context, ledger = self.context, self.context.ledger
        with ledger.stage(self.name) as stage:
            request_tools = context.request_tools
            if request_tools and request_tools.away:
                context.mark_incomplete(Degraded.TOOLS_UNAVAILABLE)
                ledger.decide(Act.TOOL_UNAVAILABLE, ", ".join(request_tools.away), SILENT_SOURCE)
            if not (request_tools and request_tools.offered):
                stage.outcome, stage.detail = pb.STAGE_OUTCOME_SKIPPED, "no tools to offer"
                return None
            if context.question.request.tool_choice.mode == chat_pb2.TOOL_MODE_NONE:
                stage.outcome, stage.detail = pb.STAGE_OUTCOME_SKIPPED, "`tool_choice` is none"
                return None
            done = await self._steps(request_tools, stage)
            called = ", ".join(run.name for run in self._runs)
            stage.detail = stage.detail or (f"called {called}" if called else "no calls")
        return done

    def leave(self) -> None:
        for run in self._runs:
            run.leave()

    async def _steps(self, request_tools: RequestTools, stage: Running) -> Done | None:
        ends = Deadline.after(stage.budget_s, self.context.ledger.clock)
        for step in range(request_tools.max_steps):
            if ends.remaining() < _LEAST_S:
                self._hurry(stage, f"{ends.remaining() * 1000:.0f} ms were left")
                return None
            asked = AgentStep(self.context, request_tools, stage, ends, request_tools.max_steps - step, first=step == 0)
            try:
                done = await asked.run()
            except ServiceError as problem:
                return await self._end_early(problem, asked, stage)
            if done or not asked.calls:
                return done
            self._begin(asked.calls, request_tools, ends, stage)
            await self._results(asked)
            if self._over or self._asked >= request_tools.max_calls:
                return None
        return None

    def _begin(
        self, calls: Sequence[chat_pb2.ToolCall], request_tools: RequestTools, ends: Deadline, stage: Running
    ) -> None:
        """Make the permitted calls at once; note why the others are not made."""
        self._outcomes = {}
        for call in calls:
            refused = self._refused(call, request_tools)
            if refused:
                self._outcomes[call.id] = refused
                continue
            tool, arguments = request_tools.offered[call.name], _canonical(call.arguments)
            run = tool_call.begin(self.context, request_tools, tool, arguments, ends.remaining(), stage.span)
            self._outcomes[call.id] = run
            self._runs.append(run)
            self._made.add((call.name, arguments))

    def _refused(self, call: chat_pb2.ToolCall, request_tools: RequestTools) -> str:
        """Why a call is not made, for the model; empty where it is."""
        ledger, most = self.context.ledger, request_tools.toolbox.settings.max_arguments_bytes
        if self._asked >= request_tools.max_calls:
            ledger.decide(Act.TOOL_CAPPED, call.name, f"at most {request_tools.max_calls} calls")
            ledger.degrade(Degraded.TOOLS_LIMITED)
            return "Not called: there were as many calls as there may be. Answer with what you have."
        self._asked += 1
        if call.name not in request_tools.offered:
            ledger.decide(Act.TOOL_REFUSED, "agent", "there is no tool of that name")
            return "Not called: there is no tool of that name."
        size = len(call.arguments.encode())
        if size > most or not is_object(call.arguments or "{}"):
            got = f"{size} bytes" if size > most else f"{size} bytes that are none"
            ledger.decide(Act.TOOL_REFUSED, call.name, f"arguments: {OBJECT} and {most} bytes, got {got}")
            return f"Not called: its arguments must be {OBJECT} and {most} bytes."
        if (call.name, _canonical(call.arguments)) in self._made:
            self._over = True
            ledger.decide(Act.TOOL_REPEATED, call.name, "the same arguments as before")
            return "Not called: this call was made before, and its result is above. Answer with it."
        return ""

    async def _results(self, asked: AgentStep) -> None:
        """Wait for the calls, and continue the conversation with their results."""
        await asyncio.gather(*(run.end() for run in self._outcomes.values() if isinstance(run, ToolRun)))
        calls = map(_repeatable, asked.calls)
        turn = chat_pb2.Message(role=chat_pb2.ROLE_ASSISTANT, content=asked.said, tool_calls=calls)
        results = [
            chat_pb2.Message(role=chat_pb2.ROLE_TOOL, tool_call_id=call.id, content=_content(self._outcomes[call.id]))
            for call in asked.calls
        ]
        for run in self._runs:
            run.leave()  # a late result is of no use: the model has been notified of the timeout
        self.context.inputs.continue_with([turn, *results])

    async def _end_early(self, problem: ServiceError, asked: AgentStep, stage: Running) -> Done | None:
        """The model has chosen no call. Text that has been sent stays the answer, as far as it came."""
        ledger, late = self.context.ledger, isinstance(problem, TooLate)
        if asked.said:
            await self.context.text_writer.release()
            stage.outcome = pb.STAGE_OUTCOME_OVERRUN if late else pb.STAGE_OUTCOME_FAILED
            stage.detail = "cut off at the budget" if late else problem.outline
            ledger.degrade(Degraded.LLM_BUDGET if late else Degraded.LLM_INTERRUPTED)
            ledger.decide(Act.BUDGET_CUT if late else Act.FAILOVER_IMPOSSIBLE, self.name, stage.detail)
            reason = chat_pb2.FINISH_REASON_BUDGET if late else chat_pb2.FINISH_REASON_INTERRUPTED
            return Done(self.context.text_writer.reason(reason), asked.model)
        if late:
            self._hurry(stage, problem.outline)
        else:
            self._skip(stage, problem)
        return asked.cut

    def _hurry(self, stage: Running, why: str) -> None:
        ledger = self.context.ledger
        stage.outcome, stage.detail = pb.STAGE_OUTCOME_OVERRUN, f"no time for another call: {why}"
        ledger.decide(Act.TOOL_OUT_OF_TIME, self.name, why)
        ledger.degrade(Degraded.TOOLS_LIMITED)

    def _skip(self, stage: Running, problem: ServiceError) -> None:
        ledger = self.context.ledger
        stage.outcome, stage.detail = pb.STAGE_OUTCOME_REPLACED, problem.outline
        ledger.decide(Act.TOOL_SKIPPED, self.name, problem.outline)
        if not self._made:  # else it answers with what it has
            ledger.degrade(Degraded.TOOLS_UNAVAILABLE)


def _repeatable(call: chat_pb2.ToolCall) -> chat_pb2.ToolCall:
    """A call for the conversation. Providers refuse a conversation with arguments that are no JSON object, such as
    those that a limit of tokens has cut."""
    if is_object(call.arguments or "{}"):
        return call
    return chat_pb2.ToolCall(id=call.id, name=call.name, arguments="{}")


def _content(outcome: str | ToolRun) -> str:
    return outcome if isinstance(outcome, str) else as_data(outcome.name, outcome.text)


def _canonical(arguments: str) -> str:
    return canonical(strict_json.loads(arguments or "{}"))
