"""What a request shows and says: its pictures become labels and its recording becomes words, each under its slice.

    audio ∥ vision → cache ∥ router → llm

A recording is the question itself, or context for one that is written; pictures are always context. What comes of them
is put before the question as the model reads it, and into the question's `attachments` as the cache keys it: the
wording of a question may vary, but never what its pictures show.

Pictures that are late are left out, and the answer is degraded. The look goes on meanwhile: when it ends before the
answer does, its labels come as a patch.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.vision.v1 import vision_pb2
from services.gateway.answer.ledger import Ledger, Running
from services.gateway.policies.shared_breaker import SharedBreaker
from services.gateway.upstream.stubs import Audio, Vision
from services.runtime import telemetry
from services.runtime.errors import InvalidInput, ServiceError, TooLate

T = TypeVar("T")
_LATE = {"vision": "vision:budget", "audio": "audio:budget"}
_GONE = {"vision": "vision:unavailable", "audio": "audio:unavailable"}
_HEADER, _QUESTION = "Context:\n", "\n\nQuestion: "


@dataclass(frozen=True, slots=True)
class Senses:
    """The services that see and hear, where there are any, and what stands before each."""

    vision: Vision | None
    vision_breaker: SharedBreaker
    audio: Audio | None
    audio_breaker: SharedBreaker
    vision_model: str = ""
    top_k: int = 1


@dataclass(frozen=True, slots=True)
class Asked:
    """The question once everything is seen and heard. `context` are the lines that its pictures and recording make;
    `whole` is whether nothing is missing."""

    messages: tuple[chat_pb2.Message, ...]
    context: tuple[str, ...] = ()
    whole: bool = True

    def for_model(self) -> list[chat_pb2.Message]:
        """The conversation as a model reads it: the context before the last question."""
        *before, last = self.messages
        if not self.context:
            return [*before, last]
        lines = "\n".join(f"- {line}" for line in self.context)
        content = f"{_HEADER}{lines}{_QUESTION}{last.content}"
        if last.content.startswith(_HEADER):  # it brings context of its own
            content = f"{_HEADER}{lines}\n{last.content.removeprefix(_HEADER)}"
        return [*before, chat_pb2.Message(role=last.role, content=content)]

    def attachments(self) -> list[str]:
        """Digests of the context, for the cache."""
        return [hashlib.sha256(line.encode()).hexdigest() for line in self.context]


def recording_is(request: pb.GenerateRequest) -> Literal["", "context", "question"]:
    """What the recording of a request is for; empty where it has none."""
    if not request.HasField("audio"):
        return ""
    written = bool(request.messages) and request.messages[-1].role == chat_pb2.ROLE_USER
    return "context" if written else "question"


class Perception:
    """One request, seen and heard. `leave` when the answer is over, however it ended."""

    def __init__(self, request: pb.GenerateRequest, tenant: str, ledger: Ledger, senses: Senses):
        self._request, self._tenant, self._ledger, self._senses = request, tenant, ledger, senses
        self._role = recording_is(request)
        self._heard = ""
        self._sights: pb.Sights | None = None
        self._looking: asyncio.Task[None] | None = None
        self._look: asyncio.Task[vision_pb2.ClassifyResponse] | None = None
        self._missed = False

    async def events(self) -> AsyncGenerator[pb.Event, None]:
        """What is heard and seen, as soon as it is known. Raises when there is no question without it."""
        if self._request.images:
            self._looking = asyncio.create_task(self._see())
            self._looking.add_done_callback(_retrieve)
        if self._role:
            await self._listen_while_looking()
            if self._heard:
                words = len(self._heard.split())
                yield pb.Event(transcript=pb.Transcript(text=self._heard, confirmed_words=words, final=True))
        if self._looking:
            await self._looking
            if self._sights:
                yield pb.Event(sights=self._sights)

    def asked(self) -> Asked:
        """The question, with what was seen and heard by now."""
        messages = tuple(self._request.messages)
        context = list(_picture_lines(self._sights))
        if self._role == "question":
            messages = (*messages, chat_pb2.Message(role=chat_pb2.ROLE_USER, content=self._heard))
        elif self._heard:
            context.append(f"audio: {self._heard}")
        return Asked(messages, tuple(context), whole=not self._missed)

    def patch(self) -> pb.Event | None:
        """What a late look has brought after all; once."""
        if self._sights or not self._look or not self._look.done() or self._look.cancelled():
            return None
        if self._look.exception():
            return None
        self._take_sights(self._look.result())
        return pb.Event(patch=pb.Patch(stage="vision", text="\n".join(_picture_lines(self._sights))))

    def leave(self) -> None:
        """Nobody waits any more."""
        for task in (self._looking, self._look):
            if task:
                task.cancel()

    async def _listen_while_looking(self) -> None:
        """A picture that is refused meanwhile ends it: nobody waits for the rest of a long recording."""
        listening = asyncio.create_task(self._listen())
        listening.add_done_callback(_retrieve)
        try:
            await asyncio.wait(filter(None, (listening, self._looking)), return_when=asyncio.FIRST_COMPLETED)
            if self._looking and self._looking.done():
                self._looking.result()
            await listening
        finally:
            listening.cancel()
            await asyncio.wait({listening})

    async def _listen(self) -> None:
        """Take down what the recording says."""
        audio = self._senses.audio
        assert audio is not None  # `admit` refuses a recording otherwise

        async def hear(stage: Running) -> str:
            summary = await audio.transcribe(self._request.audio.data, stage.budget_s, telemetry.propagate(stage.span))
            stage.detail = f"{summary.audio_s:.1f} s, {summary.speech_s:.1f} s of it speech"
            return summary.text.strip()

        required = self._role == "question"
        heard = await self._stage("audio", self._senses.audio_breaker, hear, required=required)
        if heard is None:
            self._missed = True
            return
        if required and not heard:
            raise InvalidInput("audio", "a recording in which somebody speaks", "silence")
        self._heard = self._ledger.transcript = heard

    async def _see(self) -> None:
        vision = self._senses.vision
        assert vision is not None  # `admit` refuses pictures otherwise

        async def look(stage: Running) -> vision_pb2.ClassifyResponse:
            call = vision.classify(self._wanted(), self._ledger.remaining(), telemetry.propagate(stage.span))
            self._look = asyncio.create_task(_reply(call.reply()))
            self._look.add_done_callback(_retrieve)
            done, _ = await asyncio.wait({self._look}, timeout=stage.budget_s)
            if not done:
                raise TooLate(f"vision: longer than its {stage.budget_s * 1000:.0f} ms")
            seen = self._look.result()
            named = sum(bool(shown.labels) for shown in seen.results)  # not as what: that is for the caller
            stage.detail = f"{seen.model}: {named} of {len(seen.results)} named"
            return seen

        seen = await self._stage("vision", self._senses.vision_breaker, look, required=False)
        if seen is None:
            self._missed = True
        else:
            self._take_sights(seen)

    async def _stage(
        self, name: str, breaker: SharedBreaker, work: Callable[[Running], Awaitable[T]], *, required: bool
    ) -> T | None:
        """Run a stage. One that is not required may fail: the result is None then, and the answer degraded."""
        with self._ledger.stage(name) as stage:
            result, problem = await self._attempt(name, stage, breaker, work)
        if problem and required:
            raise problem
        if problem:
            self._ledger.degraded.append((_LATE if isinstance(problem, TooLate) else _GONE)[name])
        return result

    async def _attempt(
        self, name: str, stage: Running, breaker: SharedBreaker, work: Callable[[Running], Awaitable[T]]
    ) -> tuple[T | None, ServiceError | None]:
        """The result, or why there is none. Raises what is wrong with the request."""
        if not self._ledger.worth_starting(name, stage):
            return None, TooLate(f"{name}: {stage.detail}")
        permit = breaker.enter(self._tenant)
        if permit is None:
            stage.outcome, stage.detail = pb.STAGE_OUTCOME_SKIPPED, breaker.why(self._tenant)
            self._ledger.decide("breaker", "skipped", name, stage.detail)
            return None, breaker.refusal(self._tenant)
        try:
            result = await work(stage)
            permit.replied()
            return result, None
        except ServiceError as error:
            permit.ended(error)
            if isinstance(error, InvalidInput):
                raise
            problem = error
        finally:
            permit.withdrawn()  # unless it has reported
        late = isinstance(problem, TooLate)
        stage.outcome = pb.STAGE_OUTCOME_OVERRUN if late else pb.STAGE_OUTCOME_FAILED
        stage.detail = problem.outline
        self._ledger.decide("budget" if late else "fallback", "skipped", name, problem.outline)
        return None, problem

    def _wanted(self) -> vision_pb2.ClassifyRequest:
        images = [vision_pb2.Image(data=image.data) for image in self._request.images]
        return vision_pb2.ClassifyRequest(model=self._senses.vision_model, images=images, top_k=self._senses.top_k)

    def _take_sights(self, seen: vision_pb2.ClassifyResponse) -> None:
        self._sights = self._ledger.sights = pb.Sights(pictures=seen.results)


async def _reply(reply: Awaitable[T]) -> T:
    return await reply


def _retrieve(task: asyncio.Task[Any]) -> None:
    """It may fail when nobody waits for it any more."""
    with suppress(asyncio.CancelledError):
        task.exception()


def _picture_lines(sights: pb.Sights | None) -> list[str]:
    """A line for each picture, as models have learned to read them."""
    pictures = sights.pictures if sights else ()
    return [
        "image: " + ", ".join(f"{label.name} ({label.score:.2f})" for label in picture.labels) for picture in pictures
    ]
