"""The output validation of an answer, once it is complete: whether it matches `response_format`.

Engines enforce a constraint, and some providers do not. A text that does not match is never an answer: its model is
asked once more, with the mismatch, if the request allows it and the budget suffices; otherwise the call ends with an
error. Cached answers were validated before they were stored.
"""

from __future__ import annotations

from prometheus_client import Counter

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question
from services.gateway.answer import model_call
from services.gateway.answer.backends import Backends
from services.gateway.answer.ledger import Running
from services.gateway.answer.metrics import HITS
from services.gateway.answer.model_call import collect_all
from services.gateway.answer.results import Done
from services.gateway.answer.stages.stage import AnswerStage
from services.gateway.errors import FormBroken
from services.gateway.labels import Act, Degraded
from services.gateway.output_validation.mismatch import Mismatch, Unchecked, again
from services.gateway.settings.answer_time import StageBudget
from services.runtime.errors import ServiceError

_FORMS = Counter("hedgerow_forms", "Answers with a response format, by outcome of the check.", ["outcome"])
_WHOLE = (chat_pb2.FINISH_REASON_STOP, chat_pb2.FINISH_REASON_LENGTH)
_WRITERS = ("llm", "cascade")
_KEY = b"/form"  # appended to the question's key: requests that share an answer share its repair


class FormStage(AnswerStage):
    """Validates an answer, and has it repaired once."""

    name, after, closing = "form", ("llm",), True
    budget = StageBudget(share=1, cap_ms=600_000)

    @classmethod
    def wanted(cls, question: Question, tenant: Tenant, backends: Backends) -> bool:
        return question.settings.checks_form

    async def run(self) -> Done | None:
        context, ledger, reason = self.context, self.context.ledger, self.context.prior[Done].reason
        kept = ledger.final.cache.verdict in HITS or Degraded.LLM_STALE in ledger.final.degraded
        if kept or reason not in _WHOLE:
            return None
        with ledger.stage(self.name) as stage:
            if context.question.request.response_format.HasField("grammar"):
                self._accept_grammar(reason, stage)
                return None
            try:
                found = await self._mismatch(ledger.written.whole_text)
            except Unchecked as problem:
                self._record_unchecked(str(problem), stage)
                return None
            if found is None:
                self._record(Act.FORM_VALID, "matches", stage)
                return None
            if reason == chat_pb2.FINISH_REASON_LENGTH:
                self._record_cut(found, stage)
                return None
            await context.writer.flush()  # the whole text, before it is replaced
            return await self._repair_or_fail(found, stage)

    async def _mismatch(self, text: str) -> Mismatch | None:
        context = self.context
        wanted = context.question.request.response_format
        tenant, left_s = context.tenant, context.ledger.remaining()
        return await context.backends.forms.mismatch(tenant.name, tenant.weight, wanted, text, left_s)

    def _accept_grammar(self, reason: chat_pb2.FinishReason, stage: Running) -> None:
        """Accept an answer with a grammar: the engine enforces it, and ends an answer that matches."""
        if reason == chat_pb2.FINISH_REASON_LENGTH:
            self._record_cut(Mismatch("#/grammar", "the answer is incomplete"), stage)
        else:
            self._record(Act.FORM_CONSTRAINED, "constrained by the engine", stage)

    def _record_unchecked(self, why: str, stage: Running) -> None:
        """Record that the text could not be checked."""
        stage.outcome = pb.STAGE_OUTCOME_SKIPPED
        self.context.ledger.degrade(Degraded.FORM_UNCHECKED)
        self._record(Act.FORM_UNCHECKED, why, stage)

    def _record_cut(self, found: Mismatch, stage: Running) -> None:
        """Keep an answer that a limit has cut: a repeated answer would be cut, too, and the finish reason shows it."""
        stage.outcome = pb.STAGE_OUTCOME_FAILED
        self.context.ledger.degrade(Degraded.FORM_CUT)
        self._record(Act.FORM_FAILED, f"{found.where}; the answer was cut", stage)

    async def _repair_or_fail(self, found: Mismatch, stage: Running) -> Done:
        repaired = self._why_no_repair() or await self._repair(found, stage)
        if isinstance(repaired, Done):
            stage.outcome = pb.STAGE_OUTCOME_REPLACED
            self._record(Act.FORM_REPAIRED, found.where, stage)
            return repaired
        self._record(Act.FORM_FAILED, f"{found.where}; {repaired}", stage)
        raise FormBroken(f"response_format: the answer does not match it: {stage.detail}", where=found.where)

    def _why_no_repair(self) -> str:
        """Why there is no repair; empty if there is one."""
        context, request = self.context, self.context.question.request
        left_s, took_s = context.ledger.remaining(), self._took_s()
        if not (request.repair if request.HasField("repair") else context.in_background):
            return "repair is off"
        if request.single_attempt:
            return "`single_attempt` permits no repair"
        if left_s < took_s:
            return f"no time for a repair: the answer took {took_s * 1000:.0f} ms, {left_s * 1000:.0f} ms are left"
        return ""

    def _took_s(self) -> float:
        """Seconds that the answer took, as an estimate for a repair."""
        return sum(stage.spent_ms for stage in self.context.ledger.final.stages if stage.name in _WRITERS) / 1000

    async def _repair(self, broken: Mismatch, stage: Running) -> Done | str:
        """Ask the model again, and replace the answer by a valid one. Otherwise returns why that failed."""
        context = self.context
        asked, key = await self._question(broken), context.identifier.identify().key
        work = model_call.job(context, asked, (context.prior[Done].model,), stage, first_text=False)
        reading = model_call.read(context, key and key + _KEY, work)
        try:
            tried = await collect_all(context, reading)
            if tried.finish_reason != chat_pb2.FINISH_REASON_STOP:
                return "repair failed: the answer is incomplete"
            if found := await self._mismatch(tried.text):
                return f"repair failed: {found.where}"
            context.text_writer.replace(self.name)
            await context.text_writer.say(tried.text)
            reason = await context.text_writer.finish(tried.finish_reason)
            shown = context.ledger.written.whole_text  # with what the guard has masked or ended
            if shown != tried.text and (found := await self._mismatch(shown)):
                return f"repair failed: {found.where}"
        except (ServiceError, Unchecked) as problem:
            return f"repair failed: {problem.outline if isinstance(problem, ServiceError) else problem}"
        return Done(reason, reading.report.model, tried.usage, reading.generation)

    async def _question(self, broken: Mismatch) -> llm_pb2.GenerateRequest:
        context = self.context
        asked = await model_call.question(context, "messages", "tool_choice")
        said = context.ledger.written.whole_text
        asked.messages.extend(again(said, broken, context.question.request.response_format))
        if asked.tools:
            asked.tool_choice.CopyFrom(chat_pb2.ToolChoice(mode=chat_pb2.TOOL_MODE_NONE))
        return asked

    def _record(self, act: Act, detail: str, stage: Running) -> None:
        stage.detail = detail
        _FORMS.labels(act.value.action).inc()
        self.context.ledger.decide(act, self.name, detail)
