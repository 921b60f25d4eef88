"""A cascade: a fast model answers first, and where its answer will not do the better one is asked.

The fast model's text is held until it has passed, so nothing is ever taken back; where the request wants it at once, it
goes out as it comes, and the better one's text replaces it with a patch. The fast model has the stage's slice and no
more; when that is over, or its model is away, the better one is asked as if there had been no cascade.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question
from services.gateway.admission.tools import offers_mesh_tools
from services.gateway.answer import cascade_checks, judge_prompt, model_call
from services.gateway.answer.backends import Backends
from services.gateway.answer.collect import Tried, hear, hear_all
from services.gateway.answer.draft import Streamed
from services.gateway.answer.ledger import Running
from services.gateway.answer.stages.stage import AnswerStage
from services.gateway.generation.shared import Reading
from services.gateway.labels import Act
from services.gateway.output_validation.verdict import Unchecked
from services.gateway.settings.budgets import StageBudget
from services.runtime.errors import ServiceError

_JUDGED_TOKENS = 4
_KEY = b"/cascade"  # after a question's own: equal questions share the first try, too


class CascadeStage(AnswerStage):
    """Asks the fast model, and checks what it says."""

    name, after = "cascade", ("audio", "vision", "guard", "cache", "router", "tools", "prompt")
    budget = StageBudget(share=0.4, cap_ms=60_000)

    @classmethod
    def wanted(cls, question: Question, tenant: Tenant, backends: Backends) -> bool:
        request = question.request  # where tools are offered, the fast model chooses what to call
        return request.HasField("cascade") and not offers_mesh_tools(request)

    async def run(self) -> None:
        draft, ledger = self.draft, self.draft.ledger
        draft.identity.identify()
        with ledger.stage(self.name) as stage:
            if not (draft.fast and draft.choice):
                stage.outcome, stage.detail = pb.STAGE_OUTCOME_SKIPPED, "there is no smaller model than the one chosen"
                return
            # What it takes of the time to the first text is not the better model's.
            stage.budget_s = min(stage.budget_s, self.budget.share * ledger.plan.first_text_ms / 1000)
            tried, reading = Tried(), self._ask(draft.fast.model, stage)
            try:
                await hear(draft, reading, tried, partial(self._say, reading))
                why = "" if ledger.finish_reason else await self._why_not(tried, stage)
            except ServiceError as problem:
                why = problem.outline
            stage.detail = f"{draft.fast.model}: {why or 'passed'}"
            if why:
                self._escalate(draft.fast.model, tried, stage)
            else:
                await self._take(tried, reading)

    @property
    def _at_once(self) -> bool:
        return self.draft.question.request.cascade.at_once

    def _ask(self, model: str, stage: Running) -> Reading:
        draft = self.draft
        asked, key = model_call.question(draft, "logprobs", "top_logprobs"), draft.identity.key
        key = key and key + _KEY
        if pb.VERIFIER_LOGPROBS in draft.question.request.cascade.verifiers:
            key = key and key + b"/logprobs"
            if not asked.sampling.HasField("top_logprobs"):
                asked.sampling.top_logprobs = 0  # of its own tokens alone
        work = model_call.job(draft, asked, (model,), stage, first_text=False)
        return model_call.read(draft, key, work, stage)

    async def _say(self, reading: Reading, items: Sequence[llm_pb2.GenerateResponse]) -> bool:
        """To the client, where it wants that before it has passed. Returns whether the guard has ended the answer."""
        draft = self.draft
        text, tokens = "".join(item.text for item in items), sum(item.tokens for item in items)
        if not (self._at_once and text):
            return False
        told = draft.question.request.sampling.HasField("top_logprobs")
        logprobs = [each for item in items for each in item.logprobs] if told else ()
        draft.ledger.model = reading.report.model
        await draft.voice.say(text, tokens, logprobs)
        if not draft.ledger.finish_reason:
            await draft.writer.flow()
        return bool(draft.ledger.finish_reason)

    async def _why_not(self, tried: Tried, stage: Running) -> str:
        """Why it will not do; empty where it does."""
        draft, request = self.draft, self.draft.question.request
        why = cascade_checks.refused(tried, request, draft.backends.cascade)
        if not why and cascade_checks.has_form_checked(request):
            why = await self._misshapen(tried.text, stage)
        if not why and pb.VERIFIER_JUDGE in request.cascade.verifiers:
            why = await self._objection(tried.text, stage)
        return why

    async def _misshapen(self, answer: str, stage: Running) -> str:
        draft, who = self.draft, self.draft.tenant
        wanted = draft.question.request.response_format
        try:
            found = await draft.backends.forms.mismatch(who.name, who.weight, wanted, answer, stage.budget_s)
        except Unchecked:  # the better model's would not be told from it
            return ""
        return found.where if found else ""

    async def _objection(self, answer: str, stage: Running) -> str:
        """What the better model has against it."""
        draft = self.draft
        asked = llm_pb2.GenerateRequest(
            messages=judge_prompt.to_judge(draft.inputs.for_model(), answer),
            sampling=chat_pb2.Sampling(max_tokens=_JUDGED_TOKENS, temperature=0),
            cache_salt=draft.tenant.prefix_salt,
        )
        work = model_call.job(draft, asked, (draft.chosen.model,), stage, first_text=False)
        said = await hear_all(draft, model_call.read(draft, b"", work, stage))
        against = judge_prompt.objection(said.text)
        quotes = against and draft.privacy.checks  # its words may quote what is private
        return "the judge is against it" if quotes else against

    async def _take(self, tried: Tried, reading: Reading) -> None:
        draft, ledger = self.draft, self.draft.ledger
        if self._at_once:
            await draft.voice.finish(tried.finish_reason)
        else:
            await draft.take_whole(tried.text, reading.report.model, tried.finish_reason)
            ledger.written.tokens = tried.written
        ledger.usage.CopyFrom(tried.usage)
        draft.generation = reading.generation
        ledger.decide(Act.CASCADE_PASSED, reading.report.model, "")

    def _escalate(self, fast: str, tried: Tried, stage: Running) -> None:
        draft = self.draft
        stage.outcome = pb.STAGE_OUTCOME_REPLACED
        draft.ledger.decide(Act.CASCADE_ESCALATED, draft.chosen.model, stage.detail)
        if self._at_once:
            draft.streamed = Streamed(fast, tried.finish_reason, tried.usage)
            draft.voice.replace("llm")
