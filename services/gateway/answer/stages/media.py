"""The media stages: pictures become labels and a recording becomes a transcript, concurrently, each within its slice.

A recording is the question itself, or context for a written one; pictures are always context. Late pictures are left
out, and the answer is degraded. The classification continues: when it ends before the answer does, its labels come as a
patch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.vision.v1 import vision_pb2
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question, estimated_recording_tokens, recording_tokens
from services.gateway.answer.backends import Backends
from services.gateway.answer.context import RequestContext
from services.gateway.answer.ledger import Running
from services.gateway.answer.results import Done
from services.gateway.answer.stages.stage import AnswerStage, Work
from services.gateway.labels import Act, Degraded
from services.gateway.policies.tenant_aware_breaker import TenantAwareBreaker
from services.gateway.upstream.calls import Pending, whose
from services.gateway.upstream.media import AudioBackend, VisionBackend
from services.runtime import telemetry
from services.runtime.errors import Exhausted, InvalidInput, ServiceError, TooLate, Unavailable
from services.runtime.futures import retrieve

T = TypeVar("T")


class _MediaStage(AnswerStage):
    """An optional stage, unless its input is the question itself."""

    late: Degraded
    gone: Degraded

    async def attempt(
        self, breaker: TenantAwareBreaker, work: Callable[[Running], Awaitable[T]]
    ) -> tuple[T | None, ServiceError | None]:
        """The result of the stage, or the error. Raises `InvalidInput`."""
        ledger, tenant = self.context.ledger, self.context.tenant.name
        with ledger.stage(self.name) as stage:
            if not ledger.worth_starting(self.name, stage):
                return None, TooLate(f"{self.name}: {stage.detail}")
            permit = breaker.enter(tenant)
            if permit is None:
                stage.outcome, stage.detail = pb.STAGE_OUTCOME_SKIPPED, breaker.why(tenant)
                ledger.decide(Act.BREAKER_SKIPPED, self.name, stage.detail)
                return None, breaker.refusal(tenant)
            try:
                with permit:
                    return await work(stage), None
            except InvalidInput:
                raise
            except ServiceError as problem:
                late = isinstance(problem, TooLate)
                stage.outcome = pb.STAGE_OUTCOME_OVERRUN if late else pb.STAGE_OUTCOME_FAILED
                stage.detail = problem.outline
                ledger.decide(Act.BUDGET_SKIPPED if late else Act.FALLBACK_SKIPPED, self.name, problem.outline)
                return None, problem

    def _metadata(self, stage: Running) -> telemetry.Metadata:
        return (*telemetry.propagate(stage.span), whose(self.context.tenant.name))

    def fallback(self, problem: ServiceError) -> None:
        """Continue without the result."""
        self.context.mark_incomplete(self.late if isinstance(problem, TooLate) else self.gone)


class AudioStage(_MediaStage):
    name, late, gone = "audio", Degraded.AUDIO_BUDGET, Degraded.AUDIO_UNAVAILABLE

    @classmethod
    def wanted(cls, question: Question, tenant: Tenant, backends: Backends) -> bool:
        return bool(question.recording)

    @classmethod
    def required(cls, question: Question) -> bool:
        return question.recording == "question"

    async def start(self) -> Work | None:
        audio = self.context.question.audio
        return self._transcribe(audio) if audio else None

    async def _transcribe(self, audio: AudioBackend) -> Done | None:
        try:
            await self._listen(audio)
        except TooLate as problem:
            return await self._end_without_transcript(problem)
        if text := self.context.inputs.transcript:
            transcript = pb.Transcript(text=text, confirmed_words=len(text.split()), final=True)
            self.context.writer.write(pb.Event(transcript=transcript))
        return None

    async def _listen(self, audio: AudioBackend) -> None:
        async def transcribe(stage: Running) -> str:
            recording = self.context.question.request.audio.data
            with self._charged(recording) as charge:
                summary = await audio.client.transcribe(recording, stage.budget_s, self._metadata(stage))
                charge(recording_tokens(summary.audio_s))
            stage.detail = f"{summary.audio_s:.1f} s, {summary.speech_s:.1f} s of it speech"
            return summary.text.strip()

        required = self.context.question.recording == "question"
        transcript, problem = await self.attempt(audio.breaker, transcribe)
        if problem and required:
            raise problem
        if problem:
            self.fallback(problem)
        elif required and not transcript:
            raise InvalidInput("audio", "a recording with speech", "silence")
        else:
            self.context.ledger.final.transcript = transcript or ""
            self.context.inputs.take_transcript(transcript or "")

    @contextmanager
    def _charged(self, recording: bytes) -> Iterator[Callable[[int], None]]:
        """Charge the tenant for the recording: an estimate from its bytes until its length is known, also where the
        client leaves. A service that refuses it or is unavailable costs nothing; a timeout does."""
        charged = 0

        def charge(tokens: int) -> None:
            nonlocal charged
            self.context.ledger.billed_tokens += tokens - charged
            charged = tokens

        charge(estimated_recording_tokens(recording))
        try:
            yield charge
        except (Unavailable, Exhausted, InvalidInput):
            charge(0)
            raise

    async def _end_without_transcript(self, problem: TooLate) -> Done:
        """End the answer: the time for the transcript of the question is over."""
        context = self.context
        context.mark_incomplete(Degraded.AUDIO_BUDGET)
        if "template" in context.backends.fallbacks.order:
            return await context.answer_with_template(self.name, problem.outline)
        return Done(chat_pb2.FINISH_REASON_BUDGET)


class VisionStage(_MediaStage):
    name, late, gone = "vision", Degraded.VISION_BUDGET, Degraded.VISION_UNAVAILABLE

    def __init__(self, context: RequestContext):
        super().__init__(context)
        self._classifying: asyncio.Task[vision_pb2.ClassifyResponse] | None = None
        self._seen = False  # whether the inputs have the labels

    @classmethod
    def wanted(cls, question: Question, tenant: Tenant, backends: Backends) -> bool:
        return bool(question.request.images) and not question.pixels

    async def start(self) -> Work | None:
        vision = self.context.question.vision
        return self._classify(vision) if vision else None

    def patches(self) -> Sequence[pb.Patch]:
        if self._seen or not self._classifying or not self._classifying.done() or self._classifying.cancelled():
            return ()
        if self._classifying.exception():
            return ()
        self._take(self._classifying.result())
        return [pb.Patch(stage=self.name, text="\n".join(self.context.inputs.picture_lines))]

    def leave(self) -> None:
        if self._classifying:
            self._classifying.cancel()

    async def _classify(self, vision: VisionBackend) -> None:
        async def look(stage: Running) -> vision_pb2.ClassifyResponse:
            metadata, left_s = self._metadata(stage), self.context.ledger.remaining()
            pictures, began = len(self.context.question.request.images), vision.work.clock()
            call = vision.client.classify(self._wanted(vision), left_s, metadata)
            self._classifying = asyncio.create_task(_reply(call))
            self._classifying.add_done_callback(retrieve)
            self._classifying.add_done_callback(
                lambda _: call.cancel()
            )  # also where it is cancelled before it has begun
            done, _ = await asyncio.wait({self._classifying}, timeout=stage.budget_s)
            if not done:
                raise vision.late(pictures, stage.budget_s)
            seen = self._classifying.result()
            vision.work.add(pictures, vision.work.clock() - began)
            named = sum(bool(shown.labels) for shown in seen.results)  # not as what: that is for the caller
            stage.detail = f"{seen.model}: {named} of {len(seen.results)} named"
            return seen

        seen, problem = await self.attempt(vision.breaker, look)
        if problem:
            self.fallback(problem)
        elif seen:
            self._take(seen)
            self.context.writer.write(pb.Event(sights=self.context.ledger.final.sights))

    def _wanted(self, vision: VisionBackend) -> vision_pb2.ClassifyRequest:
        images = [vision_pb2.Image(data=image.data) for image in self.context.question.request.images]
        return vision_pb2.ClassifyRequest(images=images, top_k=vision.top_k)

    def _take(self, seen: vision_pb2.ClassifyResponse) -> None:
        self.context.ledger.final.sights.pictures.extend(seen.results)
        self.context.inputs.take_labels(seen.results)
        self._seen = True


async def _reply(call: Pending) -> vision_pb2.ClassifyResponse:
    return await call.reply()  # type: ignore[no-any-return]
