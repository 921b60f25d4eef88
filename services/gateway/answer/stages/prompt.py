"""The prompt, before a model reads it: the gateway's own system prompt, prompt compression, and the fit to the context.

The stage works beside the cache lookup, and a short prompt without settings does not have it. Where the context may be
too small, the model counts the tokens; a prompt that is only compressed does not wait for a count, and its report has
the count if it comes in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question
from services.gateway.answer.backends import Backends
from services.gateway.answer.context import RequestContext
from services.gateway.answer.ledger import Running
from services.gateway.answer.prompt_builder import unplace_pictures
from services.gateway.answer.results import Route
from services.gateway.answer.stages.stage import AnswerStage, Work
from services.gateway.answer.summaries import NOTE
from services.gateway.labels import Act, Degraded
from services.gateway.prompt import window
from services.gateway.prompt.compression import compressed
from services.gateway.settings.answer_time import StageBudget
from services.runtime import telemetry
from services.runtime.complexity import Complexity
from services.runtime.errors import ContextExceeded, ServiceError
from services.runtime.futures import retrieve

_VARIANTS = {Complexity.SIMPLE: "simple", Complexity.COMPLEX: "complex"}
_COMPRESSED_ROLES: Mapping[str, tuple[int, ...]] = {
    "off": (),
    "system": (chat_pb2.ROLE_SYSTEM,),
    "all": (chat_pb2.ROLE_SYSTEM, chat_pb2.ROLE_USER),
}
_LONG_RECORDING_BYTES = 65_536  # more than a minute, where it is compressed as far as can be
_BYTES_PER_PICTURE = 100  # of its labels


def _is_needed(question: Question, least_context: int) -> bool:
    """Whether there may be work for a prompt; decided cheaply for short ones. `least_context`: the smallest context of
    all models in tokens; 0 where it is unknown."""
    request, settings = question.request, question.settings.prompt
    if request.prompt.system or _is_wordy(question):
        return True
    if least_context and request.mesh_tools:  # the length of the results is unknown
        return True
    if not least_context:
        return False
    if len(request.audio.data) > _LONG_RECORDING_BYTES:  # the length of the transcript is unknown
        return True
    reserved = request.sampling.max_tokens or settings.reserved_tokens
    seen = _BYTES_PER_PICTURE * len(request.images)
    return window.bound(question.most_bytes + seen, len(request.messages), reserved) > least_context


def _is_wordy(question: Question) -> bool:
    """Whether prompt compression may find something."""
    settings = question.settings.prompt
    if question.most_bytes < settings.diet_from_bytes:
        return False
    roles = _COMPRESSED_ROLES[settings.diet]
    return bool(roles) and any(message.role in roles for message in question.request.messages)


class PromptStage(AnswerStage):
    name, after = "prompt", ("audio", "vision", "guard", "router", "tools")
    budget = StageBudget(share=0.1, cap_ms=100)

    def __init__(self, context: RequestContext):
        super().__init__(context)
        self._settings = context.question.settings.prompt
        self._counting: asyncio.Task[int] | None = None  # of the original prompt
        self._left_out: Sequence[window.Messages] = ()
        self._reserved = 0  # tokens of the context, for the answer

    @classmethod
    def wanted(cls, question: Question, tenant: Tenant, backends: Backends) -> bool:
        return _is_needed(question, backends.routes.least_context)

    @classmethod
    def required(cls, question: Question) -> bool:
        return True

    async def start(self) -> Work | None:
        question, came, limit = self.context.question, self.context.inputs.asked.for_model(), self._limit()
        long = 0 < limit < window.most_tokens(came, self._tools_bytes)
        if long or question.request.prompt.system or _is_wordy(question):
            return self._prepare(came, limit)
        return None

    def after_final(self, final: pb.Final) -> None:
        """Have the turns that were left out summarized for the next question."""
        summaries = self.context.backends.prompts.summaries
        if summaries and final.prompt.summary == "ordered":
            self.context.ledger.billed_tokens += summaries.order(self.context.tenant, self._left_out)

    def leave(self) -> None:
        if self._counting:
            self._counting.cancel()

    async def _prepare(self, came: Sequence[chat_pb2.Message], limit: int) -> None:
        context = self.context
        with context.ledger.stage(self.name) as stage:
            report = pb.PromptReport()
            asked = self._compressed(self._with_system(context.inputs.asked.messages, report), report)
            prompt = replace(context.inputs.asked, messages=tuple(asked)).for_model()
            long = 0 < limit < window.most_tokens(prompt, self._tools_bytes)
            if not (report.diet or report.system or long):
                stage.detail = "unchanged"
                return
            if report.diet:
                stage.detail = ", ".join(report.diet)
                context.ledger.decide(Act.PROMPT_COMPRESSED, self.name, stage.detail)
            context.ledger.final.prompt.CopyFrom(report)
            report = context.ledger.final.prompt
            self._count_before(came, report, stage)
            context.inputs.prepare(await self._fitted(prompt, limit, report, stage) if long else prompt)

    def _with_system(self, messages: Sequence[chat_pb2.Message], report: pb.PromptReport) -> Sequence[chat_pb2.Message]:
        """The messages after the system prompt that the request names, in its variant."""
        context = self.context
        if not (name := context.question.request.prompt.system):
            return messages
        kept = context.backends.prompts.system_prompts[name]
        variant = _VARIANTS.get(context.prior[Route].choice.complexity, "default")
        if not getattr(kept, variant):
            variant = "default"
        report.system = f"{name}@{kept.version} ({variant})"
        return (chat_pb2.Message(role=chat_pb2.ROLE_SYSTEM, content=getattr(kept, variant)), *messages)

    def _compressed(self, messages: Sequence[chat_pb2.Message], report: pb.PromptReport) -> Sequence[chat_pb2.Message]:
        """The messages, compressed where settings say so. Of a long prompt only the first ones: compression runs in
        this process."""
        settings = self._settings
        roles, left = _COMPRESSED_ROLES[settings.diet], settings.diet_to_bytes
        found: dict[str, None] = {}
        thinner = []
        for message in messages:
            if message.role in roles and not message.documents:  # which have their places in the text
                shorter = compressed(message.content, left, settings.max_examples)
                left -= len(message.content)
                found.update(dict.fromkeys(shorter.rules))
                if shorter.rules:
                    message = chat_pb2.Message(role=message.role, content=shorter.text, pictures=message.pictures)
                    unplace_pictures(message)
            thinner.append(message)
        report.diet.extend(found)
        return thinner

    def _limit(self) -> int:
        """The most tokens that the prompt may have; 0 where the context is unknown or nothing may be left out."""
        context, request = self.context, self.context.question.request
        model, settings = context.backends.routes.model(context.prior[Route].choice.model), self._settings
        if model is None or not model.context_tokens or settings.whole or context.inputs.asked.pictures:
            return 0
        self._reserved = min(
            (request.sampling.max_tokens or settings.reserved_tokens) + len(request.prefix.encode()),
            model.context_tokens // 2,
        )
        return model.context_tokens - self._reserved

    async def _fitted(
        self, prompt: list[chat_pb2.Message], limit: int, report: pb.PromptReport, stage: Running
    ) -> list[chat_pb2.Message]:
        """The prompt within `limit` tokens. Raises `ContextExceeded` where the question alone has more by count; an
        estimate may be too high, so an estimated prompt is sent anyway."""
        conversation, step = window.parts(prompt), window.step_bytes(limit)
        tokens = await self._count(prompt, report, stage)
        steps = -(-max(0, tokens - limit) * window.size(prompt) // max(1, tokens) // step)
        while tokens > limit:
            dropped = window.cut(conversation.turns, steps, step)
            prompt = list(conversation.without(dropped, self._note(conversation.turns[:dropped], report)))
            tokens = await self._count(prompt, report, stage)
            report.dropped_turns, report.turns, steps = dropped, len(conversation.turns), steps + 1
            if dropped < len(conversation.turns):
                continue
            if tokens > limit and not report.estimated:
                raise ContextExceeded.of(limit + self._reserved, tokens, answer=self._reserved)
            break
        if report.dropped_turns:
            self._left_out = conversation.turns[: report.dropped_turns]
            said = f"{report.dropped_turns} of {len(conversation.turns)} turns left out: {tokens} of {limit} tokens"
            stage.detail = "; ".join(filter(None, [stage.detail, said]))
            self.context.ledger.decide(Act.PROMPT_SHORTENED, self.name, said)
            self.context.ledger.degrade(Degraded.PROMPT_SHORTENED)
        return prompt

    def _note(self, turns: Sequence[window.Messages], report: pb.PromptReport) -> window.Messages:
        """The message in the place of turns that are left out."""
        summaries = self.context.backends.prompts.summaries if self._settings.summary_model else None
        found = summaries.find(self.context.tenant, turns) if summaries else ""
        report.summary = "kept" if found else "ordered" if summaries else "none"
        return (chat_pb2.Message(role=chat_pb2.ROLE_SYSTEM, content=f"{NOTE}{found}"),) if found else ()

    async def _count(self, prompt: Sequence[chat_pb2.Message], report: pb.PromptReport, stage: Running) -> int:
        """Count by the model's tokenizer; by bytes where it does not count, or not in time."""
        try:
            if report.estimated:
                raise TimeoutError
            return await self._counted(prompt, stage)
        except (ServiceError, TimeoutError):
            report.estimated = True
            return window.estimated_tokens(prompt, self._tools_bytes)

    async def _counted(self, prompt: Sequence[chat_pb2.Message], stage: Running) -> int:
        context = self.context
        pool, request = context.backends.fleet.pools[context.prior[Route].choice.model], context.question.request
        metadata, left_s = telemetry.propagate(stage.span), context.ledger.left_s(stage)
        return await pool.count_tokens(prompt, request.tools, context.tenant.name, left_s, metadata)

    def _count_before(self, came: Sequence[chat_pb2.Message], report: pb.PromptReport, stage: Running) -> None:
        """Count the original prompt for the report, while everything else continues."""

        def note(counted: asyncio.Task[int]) -> None:
            if not counted.cancelled() and not counted.exception():
                report.tokens_before = counted.result()

        self._counting = asyncio.create_task(self._counted(came, stage))
        self._counting.add_done_callback(retrieve)
        self._counting.add_done_callback(note)

    @property
    def _tools_bytes(self) -> int:
        request_tools = self.context.request_tools
        mesh = request_tools.descriptions() if request_tools else ()
        return sum(tool.ByteSize() for tool in (*self.context.question.request.tools, *mesh))
