"""What to generate, and what becomes of it: the data that goes through the stack.

    Job      what is asked of models, and within what
    Placed   a job that has a place at the limiter of its first model
    Sent     a job with a place, on its way to a replica

Each layer hands on what it has narrowed; all of them write into the one `Report`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hedgerow.llm.v1 import llm_pb2
from hedgerow.router.v1 import router_pb2
from services.gateway.decisions import Decisions
from services.gateway.generation.stream import Kind
from services.gateway.policies.race import Race
from services.gateway.policies.shared_breaker import SharedPermit
from services.gateway.policies.ticket import Slot, Ticket
from services.gateway.upstream.fleet import Pool, Replica
from services.gateway.upstream.invalidations import Known
from services.gateway.upstream.prefix import Blocks
from services.runtime.deadline import Deadline
from services.runtime.telemetry import Metadata

if TYPE_CHECKING:
    from services.gateway.generation.call import Call

Observe = Callable[[router_pb2.Observation], None]


@dataclass(slots=True)
class Report:
    """What became of a job. Complete when the last message, or the error, can be read."""

    decisions: Decisions
    model: str = ""
    problems: list[str] = field(default_factory=list)  # of models that gave way to another
    waited: str = ""  # for a model to start, and for how long
    resumed: bool = False
    carried_tokens: int = 0  # written by a call that then broke
    calls: list[Call] = field(default_factory=list)  # that were sent, for whatever reason
    booked: bool = False  # whether what its calls have cost is on an account
    stored: bool = False  # whether one of those who read it has had it stored

    @property
    def prompts(self) -> int:
        """How often a model has read the prompt."""
        return sum(call.has_read for call in self.calls)


@dataclass(frozen=True, slots=True)
class Job:
    """`models` come best first: the first is asked, and has until `first_text`; the others are there when it fails.
    Replicas that have `failed` are asked again only where there is no other."""

    request: llm_pb2.GenerateRequest
    models: Sequence[str]
    deadline: Deadline
    ticket: Ticket
    first_text: Deadline
    report: Report
    metadata: Metadata = ()
    once: bool = False  # reach a model once at most
    others_when_late: bool = True  # another model may stand in for one whose first text is late
    known: Known = field(default_factory=Known)  # of the cache, when it was asked before
    failed: Sequence[Replica] = ()

    @property
    def model(self) -> str:
        """The one to ask."""
        return self.models[0]


@dataclass(frozen=True, slots=True)
class Placed:
    """A job and its place. Neither of `never` is called. `why`: for people, where it is not the `first` call."""

    job: Job
    slot: Slot
    kind: Kind = "first"
    never: Sequence[Replica] = ()
    why: str = ""
    race: Race[Any] | None = None  # with another call for the same text


@dataclass(frozen=True, slots=True)
class Sent:
    """A job, its place and the replica to ask. `prompt`: what its prompt begins with, where that matters."""

    placed: Placed
    pool: Pool
    replica: Replica
    permit: SharedPermit
    prompt: Blocks
