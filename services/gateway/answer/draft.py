"""An answer in the making: what its stages share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.tool.v1 import tool_pb2
from services.gateway.admission.identity import Tenant
from services.gateway.admission.omission import omits
from services.gateway.admission.origin import origin
from services.gateway.admission.question import Question, prompt_tokens
from services.gateway.answer.cache_question import cache_question
from services.gateway.answer.cache_verification import CacheVerification
from services.gateway.answer.event_writer import EventWriter
from services.gateway.answer.l1_cache import L1Cache
from services.gateway.answer.ledger import Ledger
from services.gateway.answer.masked_texts import in_messages
from services.gateway.answer.pictures import picture_lines
from services.gateway.answer.prompt_builder import Asked
from services.gateway.answer.summaries import Summaries
from services.gateway.answer.text_writer import TextWriter
from services.gateway.answer.write_behind import WriteBehind
from services.gateway.cache_eligibility.choice import ANY, Choice, choose, within
from services.gateway.cache_eligibility.reasons import Bypassed
from services.gateway.config import TEMPLATE
from services.gateway.generation.shared import Generation, Shared
from services.gateway.guard.checks import Checks, checks_for
from services.gateway.labels import Act, Degraded
from services.gateway.output_validation.forms import Forms
from services.gateway.policies.shared_breaker import SharedBreaker
from services.gateway.settings.generation import CascadeSettings
from services.gateway.settings.prompt import PromptSettings, SystemPromptSettings
from services.gateway.tools.toolbox import Equipment, Toolbox
from services.gateway.upstream.fleet import Fleet
from services.gateway.upstream.invalidations import Known
from services.gateway.upstream.routes import Routes
from services.gateway.upstream.stubs import Cache
from services.runtime import question_key
from services.runtime.errors import ServiceError
from services.runtime.routing import Choice as ModelChoice
from services.runtime.security.private_data import Names


@dataclass(frozen=True, slots=True)
class Fallbacks:
    """What may take the place of a model's text, in this order: `stale`, `smaller`, `template`."""

    order: Sequence[str] = ("stale", "smaller", "template")
    template: str = TEMPLATE


@dataclass(frozen=True, slots=True)
class Prompts:
    """What prompts are made with. `kept`: the gateway's own system prompts."""

    settings: PromptSettings = field(default_factory=PromptSettings)
    kept: Mapping[str, SystemPromptSettings] = field(default_factory=dict)
    summaries: Summaries | None = None


@dataclass(frozen=True, slots=True)
class Backends:
    """What answers are made from. `models` has the stack of policies before them."""

    cache: Cache | None
    cache_breaker: SharedBreaker
    fleet: Fleet
    routes: Routes
    l1: L1Cache
    write_behind: WriteBehind
    models: Shared
    fallbacks: Fallbacks = Fallbacks()
    prompts: Prompts = Prompts()
    cascade: CascadeSettings = field(default_factory=CascadeSettings)
    tools: Toolbox | None = None
    judging: CacheVerification | None = None
    forms: Forms = field(default_factory=Forms)
    omits: bool = False  # fields that a model's API does not have, where nobody says


@dataclass(frozen=True, slots=True)
class Streamed:
    """A cascade's first answer that has gone out and did not pass. `finish_reason`: unspecified where it broke off."""

    model: str
    finish_reason: chat_pb2.FinishReason
    usage: chat_pb2.Usage


@dataclass(slots=True)
class Draft:
    """What the stages have found, and what goes to the client next. `placed` is of an item of a batch: it hears when
    the model is asked."""

    question: Question
    tenant: Tenant
    ledger: Ledger
    backends: Backends
    placed: Callable[[], None] | None = None
    revalidate: Callable[[bytes], None] | None = None  # have it, of this key, answered anew
    equipment: Equipment | None = None  # what it has of the mesh's tools
    heard: str = ""
    sights: pb.Sights | None = None
    results: Sequence[tuple[str, str]] = ()  # tools, and what each said
    called: bool = False  # whether the prompt has calls that a model made of the mesh's tools
    missed: bool = False  # something of the question was not seen or heard
    choice: ModelChoice | None = None
    fast: ModelChoice | None = None  # of a cascade: who is asked before
    streamed: Streamed | None = None  # what that one has said, where it went out at once
    cached: cache_pb2.Question | None = None  # the question as the cache knows it; None: not for the cache
    key: bytes = b""  # of equal questions, as the cache has it; empty where none is equal to it
    hits: Choice = ANY  # what the cache may do for it, once it is identified
    known: Known = field(default_factory=Known)
    stale: cache_pb2.Answer | None = None
    prompt: Sequence[chat_pb2.Message] | None = None  # what the model reads, where that is not all that was asked
    generation: Generation | None = None
    checks: Checks | None = None  # what the guard looks for; None: nothing
    guarding: bool = False  # whether it still looks: until it is done nothing leaves
    private: bool = False  # what is asked may hold what is nobody else's: nothing may share it
    hidden: Mapping[str, str] = field(default_factory=dict)  # texts with names in the place of what is private
    hidden_fields: Mapping[str, str] = field(default_factory=dict)  # likewise, of a caller's own words
    names: Names = field(default_factory=Names)  # what stands for what is private, the same all through the prompt
    working: set[asyncio.Task[None]] = field(default_factory=set)  # stages that work beside others
    stirred: asyncio.Event = field(default_factory=asyncio.Event)  # one of them has ended
    _asked: Asked | None = None
    writer: EventWriter = field(init=False)
    voice: TextWriter = field(init=False)

    def __post_init__(self) -> None:
        self.checks = checks_for(self.tenant.guard, self.question.request)
        self.ledger.changes.origin = partial(origin, self.question.request, self.tenant)
        wanted = self.question.request.sentence_ends
        self.writer = EventWriter(self.ledger.accepted)
        self.voice = TextWriter(self.ledger, self.writer, self.checks, sentence_ends=wanted)

    @property
    def omits(self) -> bool:
        """Whether fields are left out that the model's API does not have."""
        return omits(self.question.request, self.tenant, by_default=self.backends.omits)

    @property
    def looked_at_also(self) -> Collection[str]:
        """Which of the application's own words the guard looks through: `system`, `prefix`, `tools`."""
        return self.checks.settings.also if self.checks else ()

    @property
    def asked(self) -> Asked:
        """The question, with what was seen and heard by now."""
        if self._asked is None:
            self._asked = self._put_together()
        return self._asked

    def for_model(self) -> Sequence[chat_pb2.Message]:
        """The conversation as a model reads it."""
        return self.asked.for_model() if self.prompt is None else self.prompt

    @property
    def prompt_tokens(self) -> int:
        """An estimate, of what is asked without its context."""
        spoken = self.question.recording == "question"
        request = self.question.request
        return prompt_tokens(self.asked.messages, request.tools) if spoken else self.question.prompt_tokens

    async def done(self, work: asyncio.Task[None]) -> None:
        """Wait for `work`, one of `working`. What fails beside it ends it at once: nobody waits for the rest of a long
        recording whose picture was refused."""
        while work in self.working:
            done, self.working = await asyncio.wait(self.working, return_when=asyncio.FIRST_COMPLETED)
            try:
                for each in done:
                    each.result()
            except ServiceError:
                await self._stop()
                raise

    async def _stop(self) -> None:
        for each in self.working:
            each.cancel()
        if self.working:
            await asyncio.wait(self.working)

    @property
    def bypassed(self) -> Bypassed | None:
        """Why the cache is left out; None: it is not, as far as is known by now."""
        if self.question.unshared:
            return self.question.unshared
        if self.private or not self.asked.whole:
            return Bypassed.PRIVATE if self.private else Bypassed.INCOMPLETE
        return self.hits.reason if self.hits.hits == "off" else None

    def identify(self) -> None:
        """Make the question what the cache and equal questions know it by, unless it is for nobody else."""
        if self.key or self.private or not (self.asked.whole and self.question.shareable):
            return
        request = self.question.request
        said = [each.content for each in reversed(self.asked.messages) if each.role == chat_pb2.ROLE_USER]
        named = bool(request.end_user)
        self.hits = choose(request.cache, request.sampling, said, self.tenant.hits, names_user=named)
        if self.hits.drawn:
            return
        identity = self.backends.routes.identity(request.model)
        question = cache_question(request, self.asked, self.tenant.name, self.hits, identity, omits=self.omits)
        question.ignore_case = self.tenant.hits.ignore_case
        question_key.normalize(question)
        self.key = question_key.digest(question)
        self.hits = within(self.hits, question.ByteSize())
        self.cached = None if self.hits.hits == "off" else question

    def take_heard(self, text: str) -> None:
        self.heard = self.ledger.transcript = text
        self._asked = None

    def take_sights(self, sights: pb.Sights) -> None:
        self.sights = self.ledger.sights = sights
        self._asked = None

    @property
    def picture_lines(self) -> Sequence[str]:
        """What a model without vision is told of the pictures."""
        seeing = self.question.seeing
        return picture_lines(self.sights, seeing.note if seeing else "")

    def take_results(self, results: Sequence[tuple[str, str]]) -> None:
        self.results, self._asked = results, None

    def take_citations(self, tool: str, found: Sequence[tool_pb2.Citation]) -> None:
        """Where something comes from goes to the client at once."""
        if found:
            citations = pb.Citations(tool=tool, citations=found)
            self.ledger.citations.append(citations)
            self.writer.write(pb.Event(citations=citations))

    def hide(self, hidden: Mapping[str, str], fields: Mapping[str, str]) -> None:
        """Have models read other texts in the place of these: of the conversation, and of other fields."""
        self.hidden, self.hidden_fields, self._asked = hidden, fields, None

    def miss(self, reason: Degraded) -> None:
        """Something of the question is not known: the answer is for nobody else."""
        self.missed, self._asked = True, None
        self.ledger.degrade(reason)

    async def take_whole(self, text: str, model: str, reason: chat_pb2.FinishReason) -> None:
        """A text that is there from the start. The answer is whole with it."""
        self.ledger.model = model
        await self.voice.say(text)
        await self.voice.finish(reason)

    async def take_template(self, stage: str, why: str) -> None:
        """The fixed text in the place of what `stage` would have brought."""
        await self.take_whole(self.backends.fallbacks.template, "", chat_pb2.FINISH_REASON_BUDGET)
        self.ledger.degrade(Degraded.LLM_TEMPLATE)
        self.ledger.decide(Act.FALLBACK_TEMPLATE, stage, why)

    def _put_together(self) -> Asked:
        request, recording = self.question.request, self.question.recording
        messages, context = tuple(request.messages), list(self.picture_lines)
        if recording == "question":
            messages = (*messages, chat_pb2.Message(role=chat_pb2.ROLE_USER, content=self.heard))
        elif self.heard:
            context.append(f"audio: {self.heard}")
        pictures = tuple(image.data for image in request.images) if self.question.pixels else ()
        kept = self.backends.prompts.kept.get(request.prompt.system)
        system = f"{request.prompt.system}@{kept.version}" if kept else ""
        if self.hidden:
            messages = in_messages(messages, self.hidden, system="system" in self.looked_at_also)
            context = [self.hidden.get(line, line) for line in context]
        return Asked(
            messages,
            tuple(context),
            whole=not self.missed,
            pictures=pictures,
            system=system,
            results=tuple(self.results),
        )
