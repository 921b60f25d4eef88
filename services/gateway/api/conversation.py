"""A spoken conversation: audio in, text out, turn by turn.

    requests → audio service → what is heard → a turn for each segment → answer → responses

A turn is the speech until a pause, and its answer. Words during an answer cut it off (barge-in); a noise without words
does not. The text so far stays in the conversation. An answer that is cut off before its first text does not count: its
question goes on with the next words, as after a pause for thought, or is asked again where those were none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager

from hedgerow.audio.v1 import audio_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.credential import Credential
from services.gateway.answer.event_writer import Send
from services.gateway.api.speech_queue import Spoken
from services.gateway.errors import Idle
from services.gateway.upstream.media import AudioCalls
from services.runtime.deadline import until_set
from services.runtime.errors import InvalidInput, ServiceError, TooLate, Unavailable
from services.runtime.limits import SPEECH_BYTES
from services.runtime.telemetry import Metadata

_PARTING_S = 2.0  # for a client to take its last error
_OPENING_S = 10.0  # for the first message
_AHEAD = 32  # responses that may wait for the client; further ones are held back
Responses = AsyncGenerator[pb.ConverseResponse, None]


class Conversation:
    """`answer` answers one turn's request, `to_error` converts its failure to the error for the caller. Of the turns so
    far, the last `keep_turns` go along with a question. Without any audio for `idle_s` it ends. Speech waits in
    `spoken` for the audio service."""

    def __init__(
        self,
        options: pb.ConverseOptions,
        answer: Callable[[pb.GenerateRequest, Send], Awaitable[object]],
        to_error: Callable[[Exception], pb.BatchError],
        keep_turns: int,
        idle_s: float,
        spoken: Spoken,
    ):
        self._options, self._answer, self._to_error = options, answer, to_error
        self._turns: deque[tuple[str, str]] = deque(maxlen=keep_turns)
        self._turn = 0
        self._unanswered = ""  # a question whose answer was cut off before its first text
        self._question = ""
        self._said: list[str] = []
        self._answering: asyncio.Task[None] | None = None  # the last turn's
        self._cut: asyncio.Task[None] | None = None  # what was cut off last
        self._idle_s, self._spoken = idle_s, spoken
        self._broken: ServiceError | None = None
        self._out: asyncio.Queue[pb.ConverseResponse | None] = asyncio.Queue(_AHEAD)
        self._closed = asyncio.Event()

    def close(self) -> None:
        """Listen no more; speech that has come is still answered."""
        self._closed.set()

    def end(self, error: ServiceError) -> None:
        """Say no more but that error."""
        self._broken = error
        while not self._out.empty():
            self._out.get_nowait()
        self._out.put_nowait(None)

    async def responses(
        self,
        requests: AsyncIterator[pb.ConverseRequest],
        audio: AudioCalls,
        timeout_s: float | None = None,
        metadata: Metadata = (),
    ) -> Responses:
        """Everything that happens, until both sides have finished. May be iterated once; closing it ends everything."""
        pumping = asyncio.create_task(self._pump(requests))
        following = asyncio.create_task(self._follow_to_the_end(audio, timeout_s, metadata))
        try:
            while (response := await self._out.get()) is not None:
                yield response
            if self._broken:
                raise self._broken
            await following
            await pumping
        finally:
            self._cut = None  # no response is sent any more
            tasks = [task for task in (pumping, following, self._answering) if task]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._spoken.clear()

    async def _pump(self, requests: AsyncIterator[pb.ConverseRequest]) -> None:
        """Read until the client or we have had enough."""
        try:
            await until_set(self._closed, self._read(requests))
        finally:
            self._spoken.end()

    async def _read(self, requests: AsyncIterator[pb.ConverseRequest]) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._idle_s) as idle:
                async for request in requests:
                    match request.WhichOneof("kind"):
                        case "audio":
                            if len(request.audio) > SPEECH_BYTES:
                                limit = f"at most {SPEECH_BYTES} bytes in a message"
                                raise InvalidInput("audio", limit, f"{len(request.audio)} bytes")
                            idle.reschedule(None)  # a client that is held back is not idle
                            await self._spoken.put(request.audio)
                            idle.reschedule(loop.time() + self._idle_s)
                        case "interrupt":
                            self._question = self._unanswered = ""
                            await self._cut_off()
                        case other:
                            raise InvalidInput("kind", "audio or interrupt after the first message", other or "nothing")
        except TimeoutError:
            limit = f"{self._idle_s:g} s"
            raise Idle(f"audio: some at least every {limit}, got none", limit=limit) from None

    async def _follow_to_the_end(self, audio: AudioCalls, timeout_s: float | None, metadata: Metadata) -> None:
        """`_follow`, then mark the end of the queue; not when cancelled: then the queue has no reader, and a full one
        would never have room."""
        try:
            await self._follow(audio, timeout_s, metadata)
        except Exception:
            await self._out.put(None)
            raise
        await self._out.put(None)

    async def _follow(self, audio: AudioCalls, timeout_s: float | None, metadata: Metadata) -> None:
        """Act on the audio service's events, until the last answer is given. Raises `Unavailable` if the service ends
        the stream before the client has, as a service that restarts does."""
        async with aclosing(audio.listen(self._sent(), timeout_s, metadata)) as events:
            async for event in events:
                await self._take(event)
        if self._answering:
            await asyncio.wait({self._answering})
        if not self._spoken.ended:
            raise Unavailable("audio: the service ended the stream before its client did")

    async def _sent(self) -> AsyncGenerator[audio_pb2.TranscribeStreamRequest, None]:
        """The stream to the audio service."""
        pause_ms = self._options.pause_ms if self._options.HasField("pause_ms") else None
        options = audio_pb2.StreamOptions(format=self._options.format, pause_ms=pause_ms)
        yield audio_pb2.TranscribeStreamRequest(options=options)
        while (audio := await self._spoken.get()) is not None:
            yield audio_pb2.TranscribeStreamRequest(audio=audio)

    async def _take(self, event: audio_pb2.TranscribeStreamResponse) -> None:
        match event.WhichOneof("kind"):
            case "speech_started":
                await self._out.put(pb.ConverseResponse(turn=self._turn, speech_started=event.speech_started))
            case "partial" if event.partial.text:
                await self._cut_off()
                await self._note_transcript(self._unanswered + event.partial.text, event.partial.confirmed)
            case "partial" if self._unanswered:
                await self._ask(self._unanswered.rstrip())
            case "segment" if event.segment.text:
                await self._cut_off()
                await self._ask(self._unanswered + event.segment.text)

    async def _note_transcript(self, text: str, confirmed: int, *, final: bool = False) -> None:
        confirmed += 0 if final else len(self._unanswered.split())
        transcript = pb.Transcript(text=text, confirmed_words=confirmed, final=final)
        await self._out.put(pb.ConverseResponse(turn=self._turn, transcript=transcript))

    async def _ask(self, question: str) -> None:
        self._unanswered, self._question, self._said = "", question, []
        await self._note_transcript(question, len(question.split()), final=True)
        self._answering = asyncio.create_task(self._give(self._turn, question, self._said))
        self._turn += 1

    async def _give(self, turn: int, question: str, said: list[str]) -> None:
        """Give the answer of a turn; its text goes into `said` as it comes. An answer that is cut off reports that
        itself, because the task that cuts it off may have ended before it."""
        try:
            await self._give_whole(turn, question, said)
        except asyncio.CancelledError:
            if self._cut is not asyncio.current_task():
                raise
            text = "".join(said)
            self._remember(question, text)
            await self._out.put(pb.ConverseResponse(turn=turn, interrupted=pb.Interrupted(text=text)))

    async def _give_whole(self, turn: int, question: str, said: list[str]) -> None:
        async def send(message: pb.GenerateResponse) -> None:
            _note(message, said)
            await self._out.put(pb.ConverseResponse(turn=turn, answer=message))

        try:
            await self._answer(self._request(question), send)
            self._remember(question, "".join(said))
        except Exception as error:  # one turn's failure does not end the conversation
            await self._out.put(pb.ConverseResponse(turn=turn, error=self._to_error(error)))

    async def _cut_off(self) -> None:
        """End the answer that is being given, if there is one. Until a question has the first text of an answer, the
        next words belong to it, unless the client has interrupted it."""
        task, question = self._answering, self._question
        if task is None or task.done():
            return
        before, self._cut = self._cut, task
        if before is not task:  # after its first step: one that is cancelled before that says nothing
            task.get_loop().call_soon(task.cancel)
        await asyncio.wait({task})
        if question and question == self._question and not "".join(self._said):
            self._unanswered = f"{question} "

    def _remember(self, question: str, text: str) -> None:
        if text.strip():
            self._turns.append((question, text))

    def _request(self, question: str) -> pb.GenerateRequest:
        """A turn, with the ones before it."""
        request = pb.GenerateRequest()
        request.CopyFrom(self._options.request)
        for asked, answered in self._turns:
            request.messages.add(role=chat_pb2.ROLE_USER, content=asked)
            request.messages.add(role=chat_pb2.ROLE_ASSISTANT, content=answered)
        request.messages.add(role=chat_pb2.ROLE_USER, content=question)
        return request


async def opening(requests: AsyncIterator[pb.ConverseRequest]) -> pb.ConverseRequest:
    """The first message; an empty one where there is none. Raises `TooLate`."""
    try:
        async with asyncio.timeout(_OPENING_S):
            return await anext(requests, pb.ConverseRequest())
    except TimeoutError:
        raise TooLate(f"options: within {_OPENING_S:g} s, got nothing") from None


def _note(message: pb.GenerateResponse, said: list[str]) -> None:
    """Update the text of an answer: a patch may replace all of it."""
    for event in message.events:
        if event.HasField("delta"):
            said.append(event.delta.text)
        elif event.patch.replaces:
            said[:] = [event.patch.text]


@contextmanager
def ends_with(credential: Credential, conversation: Conversation) -> Iterator[None]:
    """Inside, the conversation ends when its credential does: also that of a client that takes no answers."""

    async def watch(serving: asyncio.Task[object] | None) -> None:
        try:
            await credential.watch()
        except ServiceError as error:
            conversation.end(error)
        await asyncio.sleep(_PARTING_S)
        if serving:
            serving.cancel()

    watching = asyncio.create_task(watch(asyncio.current_task()))
    try:
        yield
    finally:
        watching.cancel()
