"""One answer, from an admitted question to its last event: the runner of its plan.

    audio ∥ vision → cache ∥ router ∥ tools → llm → form

A stage starts as soon as the stages that it waits for are done, whichever ends first; independent stages run
concurrently. The answer is complete as soon as one stage finishes it; closing stages check it after that. Whatever
fails, the answer ends with a `final` event within its budget, or, where there is no text, with an error that names the
failed part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.quota import JointReservation, Reservation
from services.gateway.answer.draft import Draft
from services.gateway.answer.event_writer import Send
from services.gateway.answer.plan import Slice
from services.gateway.answer.registry import STAGES
from services.gateway.answer.stages.stage import AnswerStage
from services.gateway.cache_eligibility.settings import Bypassed
from services.runtime.errors import ServiceError


class Answer:
    """The runner of one answer. It may be given once; cancelling it leaves all that is under way."""

    def __init__(
        self,
        draft: Draft,
        reservation: Reservation | JointReservation,
        stages: Mapping[str, type[AnswerStage]] = STAGES,
    ):
        self._draft, self._ledger, self._reservation, self._stages = draft, draft.ledger, reservation, stages
        self._started: dict[str, AnswerStage] = {}

    async def give(self, send: Send | None = None) -> pb.Final:
        """Send its messages with `send`; None: no client reads them. Returns its last event."""
        draft, ledger, final = self._draft, self._ledger, None
        draft.backends.fleet.request()
        try:
            self._begin(send)
            for stage in chain(self._stages_to_wait_for(), self._closing()):
                await (stage.run() if stage else self._until_one_is_ready())
            late = self._late()
            final = ledger.close()
            await draft.writer.end(*late, pb.Event(final=final))
            return final
        except ServiceError as error:
            ledger.failed(error)
            await draft.writer.arrived()
            raise
        except asyncio.CancelledError:
            ledger.dropped()
            raise
        finally:
            draft.writer.close()
            self._end(final)

    def _begin(self, send: Send | None) -> None:
        draft, ledger = self._draft, self._ledger
        writer = draft.writer  # a local name: a ledger that held the draft would be left to the garbage collector
        writer.open(send, self._late)
        ledger.tell = lambda stage: writer.note(pb.Event(stage=stage))
        none = Bypassed.NO_CACHE if draft.backends.cache is None else ""
        ledger.cache = pb.CacheReport(verdict=pb.CACHE_VERDICT_BYPASS, reason=draft.question.unshared or none)

    def _end(self, final: pb.Final | None) -> None:
        """Clean up, however the answer ended. `final`: the last event, if any."""
        stages = self._started.values()
        try:
            if final is not None:
                self._ledger.publish(final)
                for stage in stages:
                    stage.after_final(final)
        finally:
            for stage in stages:
                stage.leave()
            self._reservation.settle(self._ledger.billed_tokens)

    def _stages_to_wait_for(self) -> Iterator[AnswerStage | None]:
        """The stages to run to their end, one after the other, whichever is ready first; None while none is.
        Independent stages are started before."""
        waiting, done = [each for each in self._ledger.plan.slices if not self._is_closing(each)], set[str]()
        while not self._ledger.finish_reason:
            if startable := next((each for each in waiting if done.issuperset(each.stage.after)), None):
                waiting.remove(startable)
                started = self._start(startable.stage.name)
                if at_once := started.answers_at_once:
                    yield started
                if at_once or not started.waits:
                    done.add(startable.stage.name)
                continue
            running = [name for name in self._started if name not in done]
            if not running:
                return
            ready = running[0] if len(running) == 1 else next(filter(self._is_ready, running), None)
            yield self._started[ready] if ready else None
            if ready:
                done.add(ready)

    def _is_ready(self, name: str) -> bool:
        return self._started[name].is_ready()

    async def _until_one_is_ready(self) -> None:
        """Wait until one of the stages under way has ended."""
        await self._draft.beside.stirred.wait()
        self._draft.beside.stirred.clear()

    def _closing(self) -> Iterator[AnswerStage]:
        for planned in filter(self._is_closing, self._ledger.plan.slices):
            yield self._start(planned.stage.name)

    def _is_closing(self, planned: Slice) -> bool:
        return self._stages[planned.stage.name].closing

    def _start(self, name: str) -> AnswerStage:
        stage = self._started[name] = self._stages[name](self._draft)
        stage.start()
        return stage

    def _late(self) -> Sequence[pb.Event]:
        """Patches of the stages whose result came too late for the answer."""
        if not (self._draft.inputs.missed and self._ledger.written.text):
            return ()
        patches = [patch for stage in self._started.values() for patch in stage.patches()]
        self._ledger.patches += patches
        return [pb.Event(patch=patch) for patch in patches]
