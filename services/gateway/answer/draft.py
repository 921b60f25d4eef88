"""One answer in the making: its request, the results of its stages, and the writers of its events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.tool.v1 import tool_pb2
from services.gateway.admission.identity import Tenant
from services.gateway.admission.precedence import omits, origin
from services.gateway.admission.question import Question
from services.gateway.answer.backends import Backends
from services.gateway.answer.event_writer import EventWriter
from services.gateway.answer.inputs import Inputs, Privacy
from services.gateway.answer.ledger import Ledger
from services.gateway.answer.stages.cache.identity import CacheIdentity
from services.gateway.answer.text_writer import TextWriter
from services.gateway.generation.shared import Generation
from services.gateway.guard.checks import checks_for
from services.gateway.labels import Act, Degraded
from services.gateway.tools.toolbox import Equipment
from services.runtime.errors import Unavailable
from services.runtime.routing import Choice as ModelChoice


@dataclass(frozen=True, slots=True)
class Streamed:
    """The streamed answer of a cascade's fast model that did not pass. `finish_reason`: unspecified where it broke
    off."""

    model: str
    finish_reason: chat_pb2.FinishReason
    usage: chat_pb2.Usage


@dataclass(slots=True)
class Draft:
    """`placed` is called when the model is asked; None where a client waits for the answer. `revalidate` is called with
    the key of a stale hit. `equipment`: the mesh tools that the request names."""

    question: Question
    tenant: Tenant
    ledger: Ledger
    backends: Backends
    placed: Callable[[], None] | None = None
    revalidate: Callable[[bytes], None] | None = None
    equipment: Equipment | None = None
    choice: ModelChoice | None = None
    fast: ModelChoice | None = None  # the fast model of a cascade
    streamed: Streamed | None = None  # its answer, where it was streamed at once
    generation: Generation | None = None
    privacy: Privacy = field(init=False)
    inputs: Inputs = field(init=False)
    identity: CacheIdentity = field(init=False)
    writer: EventWriter = field(init=False)
    voice: TextWriter = field(init=False)

    def __post_init__(self) -> None:
        request, tenant, backends = self.question.request, self.tenant, self.backends
        self.privacy = Privacy(checks_for(tenant.guard, request))
        self.inputs = Inputs(self.question, self.privacy, backends.prompts.kept)
        self.identity = CacheIdentity(self.inputs, tenant, self.privacy, backends.routes, self.omits)
        self.ledger.changes.origin = partial(origin, request, tenant)
        self.writer = EventWriter(self.ledger.accepted)
        self.voice = TextWriter(
            self.ledger,
            self.writer,
            self.privacy.checks,
            sentence_ends=request.sentence_ends,
            tenant=tenant.name,
        )

    @property
    def chosen(self) -> ModelChoice:
        """The model that the router has chosen. Raises `Unavailable` where it has none."""
        if self.choice is None:
            raise Unavailable("router: no model was chosen")
        return self.choice

    @property
    def omits(self) -> bool:
        """Whether fields that the model's API lacks are omitted."""
        return omits(self.question.request, self.tenant, by_default=self.backends.omits)

    def miss(self, reason: str) -> None:
        """Note that a part of the question is unknown, and the stage as `reason`: no other caller may share the
        answer."""
        self.inputs.miss()
        self.ledger.degrade(reason)

    def take_citations(self, tool: str, found: Sequence[tool_pb2.Citation]) -> None:
        """Send citations to the client at once."""
        if found:
            citations = pb.Citations(tool=tool, citations=found)
            self.ledger.final.citations.append(citations)
            self.writer.write(pb.Event(citations=citations))

    async def take_whole(self, text: str, model: str, reason: chat_pb2.FinishReason) -> None:
        """Answer with a text that is complete from the start."""
        self.ledger.final.model = model
        await self.voice.say(text)
        await self.voice.finish(reason)

    async def take_template(self, stage: str, why: str) -> None:
        """Answer with the fixed text in the place of the result of `stage`."""
        await self.take_whole(self.backends.fallbacks.template, "", chat_pb2.FINISH_REASON_BUDGET)
        self.ledger.degrade(Degraded.LLM_TEMPLATE)
        self.ledger.decide(Act.FALLBACK_TEMPLATE, stage, why)
