"""The data that goes through the stack: a request for models, its attempts, and their outcome.

    Job       the request, the models and the deadlines
    Attempt   one call for a job: made by the layer that wants it, and sent by the last one
    Placed    an attempt that has a place at the limiter of its model
    Sent      an attempt with a place, on its way to a replica

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
from services.gateway.policies.shared_breaker import SharedPermit
from services.gateway.policies.ticket import Slot, Ticket
from services.gateway.upstream.fleet import Pool, Replica
from services.gateway.upstream.invalidations import Known
from services.gateway.upstream.prefix import Blocks
from services.runtime.deadline import Deadline
from services.runtime.telemetry import Metadata

J = TypeVar("J", contravariant=True)


@dataclass(slots=True)
class Report:
    """The outcome of a job. Complete when the last message, or the error, can be read."""

    decisions: Decisions
    model: str = ""  # of the call that is read now
    resumed: bool = False  # it goes on for one that broke
    carried_tokens: int = 0  # and so many were written before
    problems: Sequence[str] = ()  # of models that gave way to another
    waited: str = ""  # for a model to start, and for how long
    calls: list[Call] = field(default_factory=list)  # that were sent, for whatever reason
    booked: bool = False  # whether what its calls have cost is on an account
    stored: bool = False  # whether one of its readers has had it stored

    @property
    def prompts(self) -> int:
        """How often a model has read the prompt."""
        return sum(call.has_read for call in self.calls)


@dataclass(frozen=True, slots=True)
class Job:
    """`models` come best first: the first is asked, and has until `first_text`; the others are there when it fails."""

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

    @property
    def model(self) -> str:
        """The one to ask."""
        return self.models[0]


@dataclass(slots=True, eq=False)
class Attempt:
    """One call for `job`, to its first model. The layer that wants it hands it down, and can read from it at any time
    whether it was sent: its `call` says to which replica, for how long, what has come of it and why it ended."""

    job: Job
    kind: Kind = "first"
    why: str = ""  # it is made, for people, where it is not the first
    failed: Sequence[Replica] = ()  # before it; they are asked again only where there is no other
    never: Sequence[Replica] = ()  # to be asked
    carried_tokens: int = 0  # of the text that it goes on from
    call: Call | None = None
    hedge: Attempt | None = None  # beside it, for the same text

    @property
    def number(self) -> int:
        """Of those that follow each other at one model, from 1."""
        return len(self.failed) + 1

    @property
    def calls(self) -> list[Call]:
        """Its own and its hedge's, as far as they were sent."""
        return [each.call for each in (self, self.hedge) if each and each.call]


@dataclass(frozen=True, slots=True)
class Placed:
    """An attempt and its place."""

    attempt: Attempt
    slot: Slot


@dataclass(frozen=True, slots=True)
class Sent:
    """An attempt, its place and the replica to ask. `prompt`: what its prompt begins with, where that matters."""

    placed: Placed
    pool: Pool
    replica: Replica
    permit: SharedPermit
    prompt: Blocks


class Generate(Protocol[J]):
    """A layer of the stack, or the call itself: takes a job, or an attempt at it, and returns once the first text is
    there. Raises `ServiceError`."""

    async def __call__(self, job: J, /) -> Call: ...
