"""Generations: equal questions at the same time share one."""

from __future__ import annotations

from dataclasses import dataclass

from hedgerow.llm.v1 import llm_pb2
from services.gateway.generation.call import Text
from services.gateway.generation.job import Job, Report
from services.gateway.generation.retrying import Resumable
from services.gateway.labels import Act
from services.gateway.policies.single_flight import Flight, FlightReader, SingleFlight

_STILL_WORTH_IT = 0.8  # of the time that a newcomer has: a generation with less would cut its answer short


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """A job under way, and its text so far."""

    job: Job
    text: Text

    @property
    def report(self) -> Report:
        return self.job.report

    @property
    def over(self) -> bool:
        """Whether no more text will come."""
        return self.text.over

    def suits(self, job: Job) -> bool:
        """Whether a request with such a job may join: neither cut short nor delayed by it."""
        if self.job.deadline.remaining() < _STILL_WORTH_IT * job.deadline.remaining():
            return False
        comes = (job.waits_for_model or not self.report.waited) and self._has_first_text_by(job)
        return bool(self.text.items) or (comes and self.job.slot_request.score >= job.slot_request.score)

    def _has_first_text_by(self, job: Job) -> bool:
        """Whether the first text is due when that of `job` is: not much sooner, and no later where `job` has a limit
        for it."""
        now, due, limit = job.deadline.clock(), self.job.first_text_by, job.first_text_by
        return due - now >= _STILL_WORTH_IT * (limit - now) and (due <= limit or limit == job.deadline.at)


@dataclass(frozen=True, slots=True)
class GenerationReading:
    """One request's view of a generation. `joined`: another request has started it."""

    generation: Generation
    reader: FlightReader[llm_pb2.GenerateResponse]
    joined: bool

    @property
    def report(self) -> Report:
        return self.generation.report


class Shared:
    """The generations under way."""

    def __init__(self, inner: Resumable):
        self._inner = inner
        self._under_way = SingleFlight[bytes, Generation]()

    def read(self, key: bytes, job: Job, within_s: float) -> GenerationReading:
        """Join a generation of the same `key`, or start one. An empty key is never shared."""
        shared = bool(key) and not job.single_attempt
        found = self._under_way.get(key) if shared else None
        if found and found.suits(job):
            job.report.decisions.add(Act.SINGLE_FLIGHT_JOINED, job.model, "an equal request is being generated")
            return GenerationReading(found, found.text.subscribe(within_s), joined=True)
        generation = Generation(job, Flight())
        reader, execution = generation.text.subscribe(within_s), self._inner(job, generation.text)
        if shared:
            execution = self._under_way.track(key, generation, execution)
        generation.text.start(execution)
        return GenerationReading(generation, reader, joined=False)
