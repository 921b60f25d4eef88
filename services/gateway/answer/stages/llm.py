"""The text of an answer, from a model or from a substitute."""

from __future__ import annotations

from collections.abc import Sequence

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission.question import Question
from services.gateway.answer import model_call
from services.gateway.answer.draft import Streamed
from services.gateway.answer.ledger import Running
from services.gateway.answer.stages.stage import AnswerStage
from services.gateway.decisions import By, Changed
from services.gateway.generation.job import Report
from services.gateway.generation.shared import GenerationReading
from services.gateway.labels import Act, Degraded
from services.runtime.errors import InvalidInput, ServiceError, TooLate, Unavailable
from services.runtime.routing import Choice


class LlmStage(AnswerStage):
    """Reads a generation, its own or that of an equal question."""

    name = "llm"
    after = ("audio", "vision", "guard", "cache", "router", "tools", "prompt", "cascade", "agent")

    @classmethod
    def required(cls, question: Question) -> bool:
        return True

    async def run(self) -> None:
        draft, ledger = self.draft, self.draft.ledger
        draft.identity.identify()
        choice = draft.chosen
        ledger.written.prefix = draft.question.request.prefix
        with ledger.stage(self.name) as stage:
            reading = self._read(choice, stage)
            reader, report = reading.reader, reading.report
            try:
                while not ledger.finish_reason and (items := await reader.take()):
                    await self._take_text(items, reading)
                    if not ledger.finish_reason:
                        await draft.writer.flow()
                if not ledger.finish_reason:
                    raise Unavailable(f"{report.model}: ended without saying why")
                if draft.streamed and draft.voice.replacing:
                    await self._keep(draft.streamed, f"{report.model}: it says nothing", stage)
            except ServiceError as problem:
                await self.fallback(problem, stage, report)
            finally:
                model_call.settle(draft, reading)
                self._account(report, stage)
        if draft.streamed and Degraded.CASCADE_KEPT in ledger.final.degraded:
            ledger.final.usage.CopyFrom(draft.streamed.usage)

    async def fallback(self, problem: ServiceError, stage: Running, report: Report) -> None:
        """End before the model's own end: with the text so far, with a substitute, or with the error."""
        draft, ledger, late = self.draft, self.draft.ledger, isinstance(problem, TooLate)
        ledger.final.model = report.model
        if draft.streamed and draft.voice.replacing and await self._keep(draft.streamed, problem.outline, stage):
            return
        await draft.voice.release()
        stage.outcome = pb.STAGE_OUTCOME_OVERRUN if late else pb.STAGE_OUTCOME_FAILED
        stage.detail = f"{report.model or 'no model yet'}: cut off at the budget" if late else problem.outline
        if not ledger.written.begun and await self._stands_in(problem, stage):
            return
        if not ledger.written.begun and not late:
            raise problem
        await draft.voice.finish(chat_pb2.FINISH_REASON_BUDGET if late else chat_pb2.FINISH_REASON_INTERRUPTED)
        ledger.degrade(Degraded.LLM_BUDGET if late else Degraded.LLM_INTERRUPTED)
        ledger.decide(Act.BUDGET_CUT if late else Act.FAILOVER_IMPOSSIBLE, self.name, stage.detail)

    async def _keep(self, streamed: Streamed, why: str, stage: Running) -> bool:
        """Keep the streamed answer of a cascade, if it is complete: nothing replaces it."""
        draft, ledger = self.draft, self.draft.ledger
        draft.voice.keep()
        ledger.final.model = streamed.model
        ledger.reopen()
        if not streamed.finish_reason:
            return False
        stage.outcome, stage.detail = pb.STAGE_OUTCOME_REPLACED, why
        await draft.voice.finish(streamed.finish_reason)
        ledger.degrade(Degraded.CASCADE_KEPT)
        ledger.decide(Act.CASCADE_KEPT, streamed.model, why)
        return True

    async def _stands_in(self, problem: ServiceError, stage: Running) -> bool:
        """Whether something takes the place of a missing text. An overload error is passed on, because callers must
        slow down; no substitute fixes an invalid request. The fixed text is for a late answer only: callers must see
        errors of broken backends, and a caller that asked for a format cannot use a plain text."""
        draft = self.draft
        if isinstance(problem, InvalidInput):
            return False
        request = draft.question.request
        formed = request.HasField("response_format") or request.tools or request.prefix
        for name in draft.backends.fallbacks.order:
            if name == "stale" and (old := draft.identity.stale):
                await draft.take_whole(old.text, old.model, old.finish_reason)
                draft.ledger.degrade(Degraded.LLM_STALE)
                draft.ledger.decide(Act.FALLBACK_STALE, self.name, problem.outline)
            elif name == "template" and isinstance(problem, TooLate) and not formed:
                await draft.take_template(self.name, problem.outline)
            else:
                continue
            stage.outcome = pb.STAGE_OUTCOME_REPLACED
            return True
        return False

    def _read(self, choice: Choice, stage: Running) -> GenerationReading:
        draft = self.draft
        models = choice.model, *(each for each in choice.alternatives if not self._has_answered(each))
        job = model_call.job(draft, model_call.question(draft), models, stage)
        reading = model_call.read(draft, draft.identity.key, job, stage)
        draft.generation = reading.generation
        return reading

    def _has_answered(self, model: str) -> bool:
        """Whether its complete answer was streamed and did not pass: it would give the same again."""
        streamed = self.draft.streamed
        return streamed is not None and streamed.model == model and bool(streamed.finish_reason)

    async def _take_text(self, items: Sequence[llm_pb2.GenerateResponse], reading: GenerationReading) -> None:
        ledger, last, report = self.draft.ledger, items[-1], reading.report
        text, tokens = "".join(item.text for item in items), sum(item.tokens for item in items)
        ledger.final.model = report.model
        if any(item.reasoning or item.tool_calls or item.logprobs or item.relayed for item in items):
            # An equal question of another API may have been asked first. The call that goes on for one that broke is an
            # answer of its own to its provider, with another id and the usage of the rest.
            asked, own = reading.generation.job.request, self.draft.question.request
            relays = asked.original.api == own.original.api and not report.resumed
            for item in items:
                await model_call.write_message(self.draft, item, relays=relays)
        elif text:
            await self.draft.voice.say(text, tokens)
        if last.HasField("finish"):
            await self.draft.voice.finish(last.finish.reason)
            wanted = reading.generation.job.request.sampling.max_tokens
            ledger.changes.limit_tokens(last.finish.own_max_tokens, By.MESH, wanted)
            ledger.final.usage.CopyFrom(last.finish.usage)
            ledger.final.usage.completion_tokens += report.carried_tokens

    def _account(self, report: Report, stage: Running) -> None:
        """Report the outcome of the generation."""
        ledger = self.draft.ledger
        if report.problems and report.model:
            stage.outcome = pb.STAGE_OUTCOME_REPLACED
            ledger.degrade(Degraded.LLM_REPLACED)
            if self.draft.choice and report.model != self.draft.choice.model:
                ledger.changes.add(Changed.MODEL, before=self.draft.choice.model, after=report.model)
        if report.resumed or ledger.written.prefix:
            ledger.degrade(Degraded.LLM_RESUMED)
        if not stage.detail:
            stage.detail = f"{report.model}: {ledger.final.usage.completion_tokens} tokens"
        if report.model:
            stage.detail = "; ".join(filter(None, [report.waited, *report.problems, stage.detail]))
