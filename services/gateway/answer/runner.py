"""Runs the plan of one answer, from an admitted question to its last event.

    audio ∥ vision → cache ∥ router ∥ tools → llm → form

A stage starts when all stages that it waits for have ended; independent stages run concurrently. The answer is complete
when one stage finishes it; closing stages check it after that. If a stage fails, the answer still ends with a `final`
event within its budget, or, if there is no text, with an error that names the failed part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.quota import JointReservation, Reservation
from services.gateway.answer.context import RequestContext
from services.gateway.answer.event_writer import Send
from services.gateway.answer.plan import StageClaim
from services.gateway.answer.registry import STAGES
from services.gateway.answer.results import Done, Result
from services.gateway.answer.stages.stage import AnswerStage, Work
from services.gateway.labels import Bypassed
from services.runtime.errors import ServiceError
from services.runtime.futures import retrieve


class AnswerRunner:
    """Runs one answer: it owns the tasks of the stages, keeps their results, and ends the answer when a stage returns
    `Done`. `give` is called once; cancelled, it ends all stages."""

    def __init__(
        self,
        context: RequestContext,
        reservation: Reservation | JointReservation,
        stages: Mapping[str, type[AnswerStage]] = STAGES,
    ):
        self._context, self._ledger, self._reservation, self._stages = context, context.ledger, reservation, stages
        self._started: dict[str, AnswerStage] = {}
        self._begun: dict[str, Work] = {}  # started stages whose work has not begun
        self._working: dict[asyncio.Task[Result | None], str] = {}

    async def give(self, send: Send | None = None, *, progress: bool = True) -> pb.Final:
        """Run the answer, and return its last event. `send` sends its messages; None: no client reads them. Without
        `progress` they have neither the plan nor the ends of stages, which the last event has again."""
        context, ledger, final = self._context, self._ledger, None
        context.backends.fleet.count_request(context.tenant.name)
        try:
            self._begin(send, progress=progress)
            await self._run_stages()
            late = self._late()
            final = ledger.close(context.prior[Done])
            await context.writer.end(*late, pb.Event(final=final))
            return final
        except ServiceError as error:
            await self._stop()
            ledger.failed(error)
            await context.writer.arrived()
            raise
        except asyncio.CancelledError:
            await self._stop()  # then it is known what they have cost
            ledger.dropped()
            raise
        finally:
            context.writer.close()
            self._end(final)

    def _begin(self, send: Send | None, *, progress: bool) -> None:
        context, ledger = self._context, self._ledger
        writer = context.writer  # a local name: a ledger that held the context would make a cycle
        writer.open(send, self._late, plan=progress)
        if progress:
            ledger.on_stage_end = lambda stage: writer.note(pb.Event(stage=stage))
        no_cache = Bypassed.NO_CACHE if context.backends.cache is None else ""
        ledger.final.cache.verdict = pb.CACHE_VERDICT_BYPASS
        ledger.final.cache.reason = context.question.unshared or no_cache

    def _end(self, final: pb.Final | None) -> None:
        """Clean up, however the answer ended. `final`: the last event, if any."""
        stages = self._started.values()
        try:
            if final is not None:
                self._ledger.publish(final)
                for stage in stages:
                    stage.after_final(final)
        finally:
            self._cancel()
            for stage in stages:
                stage.leave()
            self._reservation.settle(self._ledger.billed_tokens)

    async def _run_stages(self) -> None:
        """Start each stage when the stages that it waits for have ended, until one has finished the answer; then run
        the closing stages."""
        waiting, closing, ended = list[StageClaim](), list[StageClaim](), set[str]()
        for planned in self._ledger.plan.slices:
            (closing if self._stages[planned.stage.name].closing else waiting).append(planned.stage)
        while not self._context.prior.get(Done):
            if startable := next((each for each in waiting if ended.issuperset(each.after)), None):
                waiting.remove(startable)
                if work := await self._start(startable.name):
                    self._begun[startable.name] = work
                else:
                    ended.add(startable.name)
            elif self._begun or self._working:
                ended |= await self._ended()
            else:
                break
        for stage in closing:
            if work := await self._start(stage.name):
                self._keep(await work)

    async def _start(self, name: str) -> Work | None:
        """Start a stage. Returns its remaining work; None if it has ended."""
        stage = self._started[name] = self._stages[name](self._context)
        started = await stage.start()
        if started is None or isinstance(started, Result):
            self._keep(started)
            return None
        return started

    def _keep(self, result: Result | None) -> None:
        if result is not None:
            self._context.prior.add(result)

    async def _ended(self) -> set[str]:
        """Wait until a stage ends, and return the names of all that have. Raises a stage's error at once: no stage
        waits for a long transcription when a picture has been refused."""
        if len(self._begun) == 1 and not self._working:
            name, work = self._begun.popitem()
            self._keep(await work)  # a task of its own would cost 20 µs
            return {name}
        for name in list(self._begun):
            task = asyncio.create_task(self._begun.pop(name))
            task.add_done_callback(retrieve)
            self._working[task] = name
        ended, _ = await asyncio.wait(self._working, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            self._keep(task.result())
        return {self._working.pop(task) for task in ended}

    async def _stop(self) -> None:
        self._cancel()
        if self._working:
            await asyncio.wait(self._working)

    def _cancel(self) -> None:
        for work in self._begun.values():
            work.close()
        for task in self._working:
            task.cancel()

    def _late(self) -> Sequence[pb.Event]:
        """Patches of the stages whose result came too late for the answer."""
        if not (self._context.inputs.incomplete and self._ledger.written.text):
            return ()
        patches = [patch for stage in self._started.values() for patch in stage.patches()]
        self._ledger.final.patches.extend(patches)
        return [pb.Event(patch=patch) for patch in patches]
