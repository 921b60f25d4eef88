"""One request under way: what it asks, the results of its stages so far, and the writers of its outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.tool.v1 import tool_pb2
from services.gateway.admission.effective import origin
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question
from services.gateway.answer.backends import Backends
from services.gateway.answer.event_writer import EventWriter
from services.gateway.answer.inputs import Inputs, Privacy
from services.gateway.answer.ledger import Ledger
from services.gateway.answer.results import Done, Prior
from services.gateway.answer.stages.cache.cache_key import Identifier
from services.gateway.answer.text_writer import TextWriter
from services.gateway.labels import Act, Degraded
from services.gateway.tools.toolbox import RequestTools


@dataclass(frozen=True, slots=True)
class RequestContext:
    """`prior` has the results of earlier stages. `on_slot`, for an answer in the background, is called when
    it has its slot at a model. `revalidate` is called with the key of a stale hit. `request_tools`: the
    mesh tools that the request names."""

    question: Question
    tenant: Tenant
    backends: Backends
    ledger: Ledger
    prior: Prior
    privacy: Privacy
    inputs: Inputs
    identifier: Identifier
    writer: EventWriter
    text_writer: TextWriter
    on_slot: Callable[[], None] | None
    revalidate: Callable[[bytes], None] | None
    request_tools: RequestTools | None

    @classmethod
    def open(
        cls,
        question: Question,
        tenant: Tenant,
        ledger: Ledger,
        backends: Backends,
        *,
        on_slot: Callable[[], None] | None = None,
        revalidate: Callable[[bytes], None] | None = None,
        request_tools: RequestTools | None = None,
    ) -> RequestContext:
        """The context of an admitted request, of which no stage has run."""
        request, settings = question.request, question.settings
        privacy = Privacy(settings.guard)
        inputs = Inputs(question, privacy, backends.prompts.system_prompts)
        writer = EventWriter(ledger.accepted)
        ledger.changes.origin = partial(origin, request, tenant)
        return cls(
            question=question,
            tenant=tenant,
            backends=backends,
            ledger=ledger,
            prior=Prior(),
            privacy=privacy,
            inputs=inputs,
            identifier=Identifier(inputs, tenant, privacy, backends.routes),
            writer=writer,
            text_writer=TextWriter(
                ledger, writer, privacy.checks, sentence_ends=request.sentence_ends, tenant=tenant.name
            ),
            on_slot=on_slot,
            revalidate=revalidate,
            request_tools=request_tools,
        )

    @property
    def in_background(self) -> bool:
        """Whether it is an item of a batch, or an answer that no client waits for."""
        return self.on_slot is not None

    def mark_incomplete(self, reason: str) -> None:
        """Note that a part of the question is unknown, and the stage as `reason`: no other caller may share the
        answer."""
        self.inputs.mark_incomplete()
        self.ledger.degrade(reason)

    def take_citations(self, tool: str, found: Sequence[tool_pb2.Citation]) -> None:
        """Send citations to the client at once."""
        if found:
            citations = pb.Citations(tool=tool, citations=found)
            self.ledger.final.citations.append(citations)
            self.writer.write(pb.Event(citations=citations))

    async def answer_with(self, text: str, model: str, reason: chat_pb2.FinishReason) -> Done:
        """Answer with a text that is complete from the start."""
        await self.text_writer.say(text)
        return Done(await self.text_writer.finish(reason), model)

    async def answer_with_template(self, stage: str, why: str) -> Done:
        """Answer with the fixed text in the place of the result of `stage`."""
        done = await self.answer_with(self.backends.fallbacks.template, "", chat_pb2.FINISH_REASON_BUDGET)
        self.ledger.degrade(Degraded.LLM_TEMPLATE)
        self.ledger.decide(Act.FALLBACK_TEMPLATE, stage, why)
        return done
