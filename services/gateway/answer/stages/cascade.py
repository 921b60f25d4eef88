"""A cascade: a fast model answers first, and where its answer does not pass the checks, the better model is asked.

The fast model's text is held until it has passed, so nothing is ever taken back. If the request wants it at once, it is
streamed, and the better model's text replaces it with a patch. The fast model has the slice of the stage and no more;
when that is over, or its model is down, the better one is asked as if there had been no cascade.

A check is a function and a line in `CHECKS`; none waits for anything. After all of them the stage has the form
validated, beside the event loop, and asks the judge, which is a model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question
from services.gateway.admission.tools import offers_mesh_tools
from services.gateway.answer import model_call
from services.gateway.answer.backends import Backends
from services.gateway.answer.background_call import objection, to_judge
from services.gateway.answer.ledger import Running
from services.gateway.answer.model_call import Tried, collect, collect_all
from services.gateway.answer.results import Done, Route, Streamed
from services.gateway.answer.stages.stage import AnswerStage
from services.gateway.generation.shared import GenerationReading
from services.gateway.labels import Act, Degraded
from services.gateway.output_validation.mismatch import Unchecked
from services.gateway.settings.answer_time import StageBudget
from services.gateway.settings.generation import CascadeSettings
from services.runtime.errors import ServiceError

_UNSURE = re.compile(
    r"\b(?:i (?:do not|don['’]t|can ?not|can['’]t) (?:know|say|tell|answer|help)"
    r"|i(?: am|['’]m) (?:not sure|unable|unsure)"
    r"|not (?:enough|sufficient) information|as an ai\b)",
    re.IGNORECASE,
)
_USUAL = (pb.VERIFIER_RULES, pb.VERIFIER_FORM)
_LONGEST = 100_000  # characters that are searched


Check = Callable[[Tried, pb.GenerateRequest, CascadeSettings], str]
_JUDGED_TOKENS = 4
_KEY = b"/cascade"  # after a question's own: equal questions share the first try, too


def refused(tried: Tried, request: pb.GenerateRequest, settings: CascadeSettings) -> str:
    """Why an answer does not pass; empty where it satisfies all checks that the request names."""
    checks = [CHECKS[name] for name in _named(request) if name in CHECKS]
    return next((why for check in checks if (why := check(tried, request, settings))), "")


def has_form_checked(request: pb.GenerateRequest) -> bool:
    return request.HasField("response_format") and pb.VERIFIER_FORM in _named(request)


def _named(request: pb.GenerateRequest) -> Sequence[int]:
    return request.cascade.verifiers or _USUAL


def _by_rules(tried: Tried, request: pb.GenerateRequest, settings: CascadeSettings) -> str:
    """Whether it is complete, says something, and does not say that it cannot answer."""
    if tried.finish_reason != chat_pb2.FINISH_REASON_STOP:
        return "incomplete answer"
    if not tried.text.strip():
        return "empty answer"
    unsure = _UNSURE.search(tried.text[:_LONGEST])
    return f"the answer says {unsure[0]!r}" if unsure else ""


def _by_logprobs(tried: Tried, request: pb.GenerateRequest, settings: CascadeSettings) -> str:
    """Whether the mean log-probability of its tokens is high enough."""
    cascade = request.cascade
    least = cascade.min_mean_logprob if cascade.HasField("min_mean_logprob") else settings.min_mean_logprob
    if not tried.logprobs:
        return "the model reports no log-probabilities"
    mean = math.fsum(tried.logprobs) / len(tried.logprobs)
    return "" if mean >= least else f"a mean log-probability of {mean:.3f}, below {least:g}"


CHECKS: Mapping[int, Check] = {
    pb.VERIFIER_RULES: _by_rules,
    pb.VERIFIER_LOGPROBS: _by_logprobs,
}


class CascadeStage(AnswerStage):
    """Asks the fast model, and checks its answer."""

    name, after = "cascade", ("audio", "vision", "guard", "cache", "router", "tools", "prompt")
    budget = StageBudget(share=0.4, cap_ms=60_000)

    @classmethod
    def wanted(cls, question: Question, tenant: Tenant, backends: Backends) -> bool:
        request = question.request  # where tools are offered, the fast model chooses what to call
        return request.HasField("cascade") and not offers_mesh_tools(request)

    async def run(self) -> Done | Streamed | None:
        context, ledger, fast = self.context, self.context.ledger, self.context.prior[Route].fast
        with ledger.stage(self.name) as stage:
            if fast is None:
                stage.outcome, stage.detail = pb.STAGE_OUTCOME_SKIPPED, "no faster model than the chosen one"
                return None
            # Its share of the time to first text; the rest is for the better model.
            stage.budget_s = min(stage.budget_s, self.budget.share * ledger.plan.first_text_ms / 1000)
            tried, reading = Tried(), await self._ask(fast.model, stage)
            try:
                await collect(context, reading, tried, partial(self._say, reading))
                why = "" if context.text_writer.cut else await self._why_not(tried, stage)
            except ServiceError as problem:
                why = problem.outline
            unchecked = "ended by the guard" if context.text_writer.cut else ""
            stage.detail = f"{fast.model}: {why or unchecked or 'passed'}"
            if not why:
                if not unchecked:
                    ledger.decide(Act.CASCADE_PASSED, reading.report.model, "")
                return await self._take(tried, reading)
            stage.outcome = pb.STAGE_OUTCOME_REPLACED
            ledger.decide(Act.CASCADE_ESCALATED, context.prior[Route].choice.model, stage.detail)
            if not self._at_once:
                return None
            context.text_writer.replace("llm")
            return Streamed(fast.model, tried.finish_reason, tried.usage)

    @property
    def _at_once(self) -> bool:
        return self.context.question.request.cascade.at_once

    async def _ask(self, model: str, stage: Running) -> GenerationReading:
        context = self.context
        asked = await model_call.question(context, "logprobs", "top_logprobs")
        key = context.identifier.identify().key
        key = key and key + _KEY
        if pb.VERIFIER_LOGPROBS in context.question.request.cascade.verifiers:
            key = key and key + b"/logprobs"
            if not asked.sampling.HasField("top_logprobs"):
                asked.sampling.top_logprobs = 0  # of its own tokens alone
        work = model_call.job(context, asked, (model,), stage, first_text=False)
        return model_call.read(context, key, work)

    async def _say(self, reading: GenerationReading, items: Sequence[llm_pb2.GenerateResponse]) -> bool:
        """Stream text to a client that wants it at once. Returns whether the guard has ended the answer."""
        context = self.context
        text, tokens = "".join(item.text for item in items), sum(item.tokens for item in items)
        if not (self._at_once and text):
            return False
        wants_logprobs = context.question.request.sampling.HasField("top_logprobs")
        logprobs = [each for item in items for each in item.logprobs] if wants_logprobs else ()
        await context.text_writer.say(text, tokens, logprobs)
        if not context.text_writer.cut:
            await context.writer.flow()
        return context.text_writer.cut

    async def _why_not(self, tried: Tried, stage: Running) -> str:
        """Why the answer does not pass; empty where it does."""
        context, request = self.context, self.context.question.request
        why = refused(tried, request, context.backends.cascade)
        if not why and has_form_checked(request):
            why = await self._misshapen(tried.text, stage)
        if not why and pb.VERIFIER_JUDGE in request.cascade.verifiers:
            why = await self._objection(tried.text, stage)
        return why

    async def _misshapen(self, answer: str, stage: Running) -> str:
        context, tenant = self.context, self.context.tenant
        wanted, left_s = context.question.request.response_format, context.ledger.left_s(stage)
        try:
            found = await context.backends.forms.mismatch(tenant.name, tenant.weight, wanted, answer, left_s)
        except Unchecked:  # the better model's answer could not be checked either
            return ""
        return found.where if found else ""

    async def _objection(self, answer: str, stage: Running) -> str:
        """The objection of the better model; empty without one."""
        context = self.context
        asked = llm_pb2.GenerateRequest(
            messages=to_judge(context.inputs.for_model(), answer),
            sampling=chat_pb2.Sampling(max_tokens=_JUDGED_TOKENS, temperature=0),
            cache_salt=context.tenant.prefix_salt,
        )
        work = model_call.job(context, asked, (context.prior[Route].choice.model,), stage, first_text=False)
        said = await collect_all(context, model_call.read(context, b"", work))
        against = objection(said.text)
        quotes = against and context.privacy.checks  # the objection may quote private data
        return "the judge rejects the answer" if quotes else against

    async def _take(self, tried: Tried, reading: GenerationReading) -> Done:
        context, ledger = self.context, self.context.ledger
        if reading.report.resumed:
            ledger.degrade(Degraded.LLM_RESUMED)
        if not self._at_once:
            await context.text_writer.say(tried.text)
        reason = await context.text_writer.finish(tried.finish_reason)
        if not self._at_once:
            ledger.written.tokens = tried.written
        return Done(reason, reading.report.model, tried.usage, reading.generation)
