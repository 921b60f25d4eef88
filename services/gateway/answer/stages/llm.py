"""The text of an answer, from a model or from a substitute."""

from __future__ import annotations

from collections.abc import Sequence

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission.question import Question
from services.gateway.answer import model_call
from services.gateway.answer.ledger import Running
from services.gateway.answer.results import CacheDecision, Done, Route, Streamed
from services.gateway.answer.stages.stage import AnswerStage
from services.gateway.decisions import By, Changed
from services.gateway.generation.job import Report
from services.gateway.generation.shared import GenerationReading
from services.gateway.labels import Act, Degraded
from services.runtime.errors import InvalidInput, ServiceError, TooLate, Unavailable
from services.runtime.routing import Tier


class LlmStage(AnswerStage):
    """Reads a generation, its own or that of an equal question."""

    name = "llm"
    after = ("audio", "vision", "guard", "cache", "router", "tools", "prompt", "cascade", "agent")

    @classmethod
    def required(cls, question: Question) -> bool:
        return True

    async def run(self) -> Done:
        context, ledger = self.context, self.context.ledger
        ledger.written.prefix = context.question.request.prefix
        with ledger.stage(self.name) as stage:
            reading, tokens = await self._read(stage), 0
            try:
                done = await self._relay(reading)
                tokens = done.usage.completion_tokens
            except ServiceError as problem:
                done = await self.fallback(problem, stage, reading)
            finally:
                model_call.settle(context, reading)
                self._account(reading.report, tokens, stage)
        return done

    async def _relay(self, reading: GenerationReading) -> Done:
        """Write the text as it comes. Raises the error of the model, and `Unavailable` where the model ends without a
        reason, or without a text to replace that of a cascade."""
        context = self.context
        while items := await reading.reader.take():
            if done := await self._take_text(items, reading):
                if self._streamed and context.text_writer.replacing:
                    raise Unavailable(f"{reading.report.model}: empty answer")
                return done
            await context.writer.flow()
        raise Unavailable(f"{reading.report.model}: ended without a finish reason")

    async def fallback(self, problem: ServiceError, stage: Running, reading: GenerationReading) -> Done:
        """End before the model's own end: with the text so far, with a substitute, or with the error."""
        context, ledger, late = self.context, self.context.ledger, isinstance(problem, TooLate)
        report, model = reading.report, reading.report.model
        if self._streamed and context.text_writer.replacing:
            context.text_writer.keep()
            model = self._streamed.model
            if self._streamed.finish_reason:
                return await self._keep(self._streamed, problem.outline, stage)
        await context.text_writer.release()
        stage.outcome = pb.STAGE_OUTCOME_OVERRUN if late else pb.STAGE_OUTCOME_FAILED
        stage.detail = f"{report.model or 'no model yet'}: cut off at the budget" if late else problem.outline
        if not ledger.written.begun and (done := await self._stand_in(problem, stage)):
            return done
        if not ledger.written.begun and not late:
            raise problem
        ledger.degrade(Degraded.LLM_BUDGET if late else Degraded.LLM_INTERRUPTED)
        ledger.decide(Act.BUDGET_CUT if late else Act.FAILOVER_IMPOSSIBLE, self.name, stage.detail)
        reason = chat_pb2.FINISH_REASON_BUDGET if late else chat_pb2.FINISH_REASON_INTERRUPTED
        return Done(context.text_writer.reason(reason), model, generation=reading.generation)

    async def _keep(self, streamed: Streamed, why: str, stage: Running) -> Done:
        """Keep the complete answer of a cascade that was streamed."""
        ledger = self.context.ledger
        stage.outcome, stage.detail = pb.STAGE_OUTCOME_REPLACED, why
        reason = await self.context.text_writer.finish(streamed.finish_reason)
        ledger.degrade(Degraded.CASCADE_KEPT)
        ledger.decide(Act.CASCADE_KEPT, streamed.model, why)
        return Done(reason, streamed.model, streamed.usage)

    async def _stand_in(self, problem: ServiceError, stage: Running) -> Done | None:
        """Answer with a substitute for the missing text; None where there is none. An overload error is passed on,
        because callers must slow down; no substitute fixes an invalid request. The fixed text is for a late answer
        only: callers must see errors of broken backends, and a caller that asked for a format cannot use a plain
        text."""
        context = self.context
        if isinstance(problem, InvalidInput):
            return None
        request, decision = context.question.request, context.prior.get(CacheDecision)
        formed = request.HasField("response_format") or request.tools or request.prefix
        for name in context.backends.fallbacks.order:
            if name == "stale" and decision and decision.stale:
                old = decision.stale
                done = await context.answer_with(old.text, old.model, old.finish_reason)
                context.ledger.degrade(Degraded.LLM_STALE)
                context.ledger.decide(Act.FALLBACK_STALE, self.name, problem.outline)
            elif name == "template" and isinstance(problem, TooLate) and not formed:
                done = await context.answer_with_template(self.name, problem.outline)
            else:
                continue
            stage.outcome = pb.STAGE_OUTCOME_REPLACED
            return done
        return None

    async def _read(self, stage: Running) -> GenerationReading:
        context, choice = self.context, self.context.prior[Route].choice
        models = choice.model, *(each for each in choice.alternatives if not self._has_answered(each))
        job = model_call.job(context, await model_call.question(context), models, stage)
        return model_call.read(context, context.identifier.identify().key, job)

    @property
    def _streamed(self) -> Streamed | None:
        return self.context.prior.get(Streamed)

    def _has_answered(self, model: str) -> bool:
        """Whether its complete answer was streamed and did not pass: it would give the same again."""
        streamed = self._streamed
        return streamed is not None and streamed.model == model and bool(streamed.finish_reason)

    async def _take_text(self, items: Sequence[llm_pb2.GenerateResponse], reading: GenerationReading) -> Done | None:
        """Write these messages. Returns the end of the answer, where they have it or the guard has ended it."""
        last, pieces, tokens, text_alone = items[-1], list[str](), 0, True
        for item in items:
            pieces.append(item.text)
            tokens += item.tokens
            text_alone = text_alone and not (item.reasoning or item.tool_calls or item.logprobs or item.relayed)
        if not text_alone:
            # An equal question of another API may have been asked first. The call that goes on for one that broke is an
            # answer of its own to its provider, with another id and the usage of the rest.
            asked, own = reading.generation.job.request, self.context.question.request
            relays = asked.original.api == own.original.api and not reading.report.resumed
            for item in items:
                await model_call.write_message(self.context, item, relays=relays)
        elif text := "".join(pieces):
            await self.context.text_writer.say(text, tokens)
        if last.HasField("finish"):
            reason = await self.context.text_writer.finish(last.finish.reason)
            wanted, report = reading.generation.job.request.sampling.max_tokens, reading.report
            self.context.ledger.changes.limit_tokens(last.finish.own_max_tokens, By.MESH, wanted)
            return Done(reason, report.model, model_call.usage(last.finish, report), reading.generation)
        if self.context.text_writer.cut:
            return Done(chat_pb2.FINISH_REASON_CONTENT_FILTER, reading.report.model, generation=reading.generation)
        return None

    def _account(self, report: Report, tokens: int, stage: Running) -> None:
        ledger = self.context.ledger
        if report.problems and report.model:
            stage.outcome = pb.STAGE_OUTCOME_REPLACED
        chosen = self.context.prior[Route].choice.model
        if report.model not in ("", chosen):  # as a fallback, or because it was faster as the hedge
            ledger.changes.add(Changed.MODEL, before=chosen, after=report.model)
            if report.problems or self._tier(report.model) < self._tier(chosen):
                ledger.degrade(Degraded.LLM_REPLACED)
        if report.resumed or ledger.written.prefix:
            ledger.degrade(Degraded.LLM_RESUMED)
        if not stage.detail:
            stage.detail = f"{report.model}: {tokens} tokens"
        if report.model:
            stage.detail = "; ".join(filter(None, [report.waited, *report.problems, stage.detail]))

    def _tier(self, name: str) -> Tier:
        model = self.context.backends.routes.model(name)
        return model.tier if model else Tier.UNSPECIFIED
