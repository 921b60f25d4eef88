"""A cascade: a fast model answers first, and where its answer will not do the better one is asked.

The fast model's text is held until it has passed, so nothing is ever taken back. It has the stage's slice and no more;
when that is over, or its model is away, the better one is asked as if there had been no cascade.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.answer import asking, verifying
from services.gateway.answer.ledger import Running
from services.gateway.answer.stages.stage import AnswerStage, Needs
from services.gateway.answer.verifying import Tried
from services.gateway.config import StageBudget
from services.gateway.generation.shared import Reading
from services.gateway.labels import Act
from services.runtime.errors import ServiceError

_JUDGED_TOKENS = 4
_KEY = b"/cascade"  # after a question's own: equal questions share the first try, too


class CascadeStage(AnswerStage):
    """Asks the fast model, and checks what it says."""

    name, after = "cascade", ("audio", "vision", "guard", "cache", "router", "tools", "prompt")
    budget = StageBudget(share=0.4, cap_ms=60_000)

    @classmethod
    def wanted(cls, needs: Needs) -> bool:
        return needs.cascade and not needs.offered  # else the fast model chooses what to call

    async def run(self) -> AsyncGenerator[None, None]:
        draft, ledger = self.draft, self.draft.ledger
        draft.identify()
        with ledger.stage(self.name) as stage:
            if not (draft.fast and draft.choice):
                stage.outcome, stage.detail = pb.STAGE_OUTCOME_SKIPPED, "there is no smaller model than the one chosen"
                return
            # What it takes of the time to the first text is not the better model's.
            stage.budget_s = min(stage.budget_s, self.budget.share * ledger.plan.first_text_ms / 1000)
            if draft.has_news:
                yield
            reading = self._ask(draft.fast.model, stage)
            why = await self._why_not(reading, stage)
            stage.detail = f"{draft.fast.model}: {why or 'passed'}"
            if why:
                stage.outcome = pb.STAGE_OUTCOME_REPLACED
                ledger.decide(Act.CASCADE_ESCALATED, draft.choice.model, stage.detail)
            else:
                ledger.decide(Act.CASCADE_PASSED, draft.fast.model, "")

    def _ask(self, model: str, stage: Running) -> Reading:
        draft = self.draft
        asked, key = asking.question(draft), draft.key and draft.key + _KEY
        if pb.VERIFIER_LOGPROBS in draft.question.request.cascade.verifiers:
            key = key and key + b"/logprobs"
            if not asked.sampling.HasField("top_logprobs"):
                asked.sampling.top_logprobs = 0  # of its own tokens alone
        work = asking.job(draft, asked, (model,), stage, first_text=False)
        return asking.read(draft, key, work, stage)

    async def _why_not(self, reading: Reading, stage: Running) -> str:
        """Take the answer over where it will do; else why it will not."""
        draft, request = self.draft, self.draft.question.request
        tried, usage = Tried(), chat_pb2.Usage()
        try:
            written = await self._hear(reading, tried, usage)
            why = verifying.refused(tried, request, draft.backends.cascade)
            if not why and pb.VERIFIER_JUDGE in request.cascade.verifiers:
                why = await self._objection(tried.text, stage)
        except ServiceError as problem:
            return problem.outline
        if why:
            return why
        draft.take_whole(tried.text, reading.report.model, tried.finish_reason)
        draft.ledger.usage.CopyFrom(usage)
        draft.generation = reading.generation
        draft.ledger.written.tokens = written
        return ""

    async def _objection(self, answer: str, stage: Running) -> str:
        """What the better model has against it."""
        draft, said = self.draft, Tried()
        assert draft.choice
        asked = llm_pb2.GenerateRequest(
            messages=verifying.to_judge(draft.for_model(), answer),
            sampling=chat_pb2.Sampling(max_tokens=_JUDGED_TOKENS, temperature=0),
            cache_salt=draft.tenant.prefix_salt,
        )
        work = asking.job(draft, asked, (draft.choice.model,), stage, first_text=False)
        await self._hear(asking.read(draft, b"", work, stage), said, chat_pb2.Usage())
        against = verifying.objection(said.text)
        return "the judge is against it" if against and draft.checks else against  # its words may quote what is private

    async def _hear(self, reading: Reading, tried: Tried, usage: chat_pb2.Usage) -> int:
        """Read to the end, and put it on the account. Returns how many tokens were written."""
        written = 0
        try:
            while tried.finish_reason == chat_pb2.FINISH_REASON_UNSPECIFIED and (items := await reading.reader.take()):
                for item in items:
                    tried.text += item.text
                    tried.logprobs += [token.logprob for token in item.logprobs]
                    written += item.tokens
                    if item.HasField("finish"):
                        tried.finish_reason = item.finish.reason
                        usage.CopyFrom(item.finish.usage)
        finally:
            asking.settle(self.draft, reading, self.draft.for_model(), usage, written)
        return written
