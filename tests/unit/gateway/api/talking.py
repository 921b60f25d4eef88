"""A spoken conversation whose listener and whose answers follow scripts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from hedgerow.audio.v1 import audio_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.event_writer import Send
from services.gateway.api.conversation import Conversation
from services.gateway.api.speech_queue import ConversationBytes, Spoken
from tests.unit.gateway.scripted_media import Said, ScriptedAudio

Answer = Callable[[pb.GenerateRequest, Send], Awaitable[None]]


def partial(words: str, confirmed: int = 0) -> Said:
    return Said(partial=audio_pb2.Partial(text=words, confirmed=confirmed))


def segment(words: str) -> Said:
    return Said(segment=audio_pb2.Segment(text=words))


STARTED = Said(speech_started=audio_pb2.SpeechStarted(at_s=1))


class Talk:
    """A conversation whose answers are given by `how`: they say what they were asked."""

    def __init__(self, audio: ScriptedAudio, idle_s: float = 60):
        self.audio, self.asked = audio, []
        self.how: Answer = self.answer
        self.spoken: asyncio.Queue[pb.ConverseRequest | None] = asyncio.Queue()
        self.left = 0
        self.spoken_here = Spoken(1_000, ConversationBytes(10_000))
        options = pb.ConverseOptions(pause_ms=300)
        self.conversation = Conversation(options, self._answer, self.to_error, 2, idle_s, self.spoken_here)
        self.responses = self.conversation.responses(self.requests(), audio)

    async def requests(self) -> AsyncIterator[pb.ConverseRequest]:
        while request := await self.spoken.get():
            yield request

    async def _answer(self, request: pb.GenerateRequest, send: Send) -> None:
        await self.how(request, send)

    async def answer(self, request: pb.GenerateRequest, send: Send) -> None:
        self.asked.append([message.content for message in request.messages])
        await send(delta(f"re: {request.messages[-1].content}"))

    async def forever(self, request: pb.GenerateRequest, send: Send) -> None:
        """An answer that never ends once it has begun."""
        try:
            await self.answer(request, send)
            await asyncio.Event().wait()
        finally:
            self.left += 1

    @staticmethod
    def to_error(error: Exception) -> pb.BatchError:
        return pb.BatchError(message=str(error))

    def say(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.spoken.put_nowait(pb.ConverseRequest(audio=piece))

    def end(self) -> None:
        self.spoken.put_nowait(None)

    async def until(self, kind: str) -> pb.ConverseResponse:
        """The next response of a kind."""
        async for response in self.responses:
            if response.WhichOneof("kind") == kind:
                return response
        raise AssertionError(f"no {kind}")

    async def rest(self) -> list[str]:
        """The leftovers, by kind."""
        return [response.WhichOneof("kind") async for response in self.responses]


def delta(words: str) -> pb.GenerateResponse:
    return pb.GenerateResponse(events=[pb.Event(delta=pb.TextDelta(text=words))])


def scripted(**lines: list[Said]) -> ScriptedAudio:
    audio = ScriptedAudio()
    audio.script = {name.encode(): line for name, line in lines.items()}
    return audio


async def cut_off(**heard: list[Said]) -> Talk:
    """A talk in which the question `a` is cut off by `b` and `c` before its answer began."""
    talk, began = Talk(scripted(**heard)), asyncio.Event()

    async def silent(request: pb.GenerateRequest, send: Send) -> None:
        began.set()
        await asyncio.Event().wait()

    talk.how = silent
    talk.say(b"a")
    await talk.until("transcript")
    await began.wait()
    talk.how = talk.answer
    talk.say(b"b", b"c")
    assert (await talk.until("interrupted")).interrupted.text == ""
    return talk
