"""The data that goes through the stack: a request for models, its attempts, and their outcome.

    Job       the request, the models and the deadlines
    Attempt   one call for a job: made by the layer that wants it, and sent by the last one
    Granted   an attempt that has a slot at the limiter of its model
    Sent      an attempt with a slot, on its way to a replica

Each layer passes on what it has narrowed. It reads the outcome from the attempt that it passed on, and from the call
that it got back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from hedgerow.llm.v1 import llm_pb2
from services.gateway.decisions import Decisions
from services.gateway.generation.call import Call, Kind
from services.gateway.policies.slot import Slot, SlotRequest
from services.gateway.policies.tenant_aware_breaker import TenantAwarePermit
from services.gateway.upstream.balance import Blocks
from services.gateway.upstream.cache import Known
from services.gateway.upstream.fleet import Pool
from services.gateway.upstream.replica import Replica
from services.runtime.deadline import Deadline
from services.runtime.telemetry import Metadata

J = TypeVar("J", contravariant=True)


@dataclass(slots=True)
class Report:
    """The outcome of a job. Complete when the last message, or the error, can be read."""

    decisions: Decisions
    model: str = ""  # of the call that is read now
    resumed: bool = False  # whether that call continues a broken one
    carried_tokens: int = 0  # tokens written before it
    problems: Sequence[str] = ()  # errors of models that were replaced
    waited: str = ""  # for a model to start, and for how long
    calls: list[Call] = field(default_factory=list)  # that were sent, for whatever reason
    billed: bool = False
    stored: bool = False  # whether one of its readers has had it stored

    def unbilled(self) -> list[Call]:
        """The calls whose prompt a model has read, once: later callers of this method get none. All readers of a
        generation are of one tenant, so the first to settle is charged for all."""
        calls = [] if self.billed else [call for call in self.calls if call.has_read]
        self.billed = True
        return calls

    @property
    def has_reached_model(self) -> bool:
        """Whether a model has had the request: was called, and has not refused it."""
        return any(call.outcome != "refused" for call in self.calls)

    @property
    def prompts(self) -> int:
        """How often a model has read the prompt."""
        return sum(call.has_read for call in self.calls)


@dataclass(frozen=True, slots=True)
class Job:
    """`models` come best first: the first is asked, and has until `first_text`; the others are alternatives when it
    fails."""

    request: llm_pb2.GenerateRequest
    models: Sequence[str]
    deadline: Deadline
    slot_request: SlotRequest
    first_text: Deadline
    report: Report
    metadata: Metadata = ()
    single_attempt: bool = False  # reach a model once at most
    waits_for_model: bool = True  # to start or to come back; not where an expired answer may stand in for the model's
    fallback_when_late: bool = True  # another model may stand in for one whose first text is late
    known: Known = field(default_factory=Known)  # of the cache, when it was asked before

    @property
    def model(self) -> str:
        return self.models[0]

    @property
    def first_text_by(self) -> float:
        """When its first text is due, on the clock of its deadline."""
        return min(self.first_text.at, self.deadline.at)


@dataclass(slots=True, eq=False)
class Attempt:
    """One call for `job`, to its first model. The layer that makes it passes it down, and can read at any time whether
    it was sent: `call` has the replica, the duration, the outcome and its reason."""

    job: Job
    kind: Kind = "first"
    reason: str = ""  # why it is made, for people, unless it is the first
    failed: Sequence[Replica] = ()  # before it; they are asked again only where there is no other
    excluded: Sequence[Replica] = ()  # to be asked
    carried_tokens: int = 0  # of the text that it continues
    call: Call | None = None
    hedge: Attempt | None = None  # the concurrent call for the same text

    @property
    def number(self) -> int:
        """The attempt's number in a series of retries at a model, from 1."""
        return len(self.failed) + 1

    @property
    def calls(self) -> list[Call]:
        """Its call and that of its hedge, if they were sent."""
        return [each.call for each in (self, self.hedge) if each and each.call]


@dataclass(frozen=True, slots=True)
class Granted:
    attempt: Attempt
    slot: Slot


@dataclass(frozen=True, slots=True)
class Sent:
    """An attempt, its slot and the replica to ask. `prompt`: the blocks of its prefix, where the pool uses them."""

    granted: Granted
    pool: Pool
    replica: Replica
    permit: TenantAwarePermit
    prompt: Blocks


class Generate(Protocol[J]):
    """A layer of the stack, or the call itself: takes a job, or an attempt at it, and returns once the first text is
    there. Raises `ServiceError`."""

    async def __call__(self, job: J, /) -> Call: ...
