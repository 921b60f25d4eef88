"""A conversation that is cancelled or ended at any turn of the loop, leaves no answer, no listener, no audio behind.
A client that stays gets the end of every answer that has begun."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.event_writer import Send
from services.gateway.api import conversation as under_test
from services.gateway.api.conversation import Conversation
from services.gateway.api.speech_queue import ConversationBytes, Spoken
from services.gateway.errors import KeyUnknown
from tests.cancelling import Work, cancelled_at_every_await, disturbed_at_every_turn
from tests.unit.gateway.api.talking import STARTED, delta, partial, segment
from tests.unit.gateway.scripted_media import Said, ScriptedAudio

INTERRUPT = pb.ConverseRequest(interrupt=pb.Interrupt())
END = "end"  # of an answer: its last message says so
MOST_BYTES = 400  # that may wait for the audio service: two pieces


class SlowAudio(ScriptedAudio):
    """Takes `transcribe_s` for a transcript. `listening`: whether a caller holds its stream."""

    listening, transcribe_s = 0, 0.01

    async def listen(self, requests, timeout_s, metadata) -> AsyncGenerator[Said, None]:
        self.listening += 1
        try:
            async with aclosing(super().listen(requests, timeout_s, metadata)) as events:
                async for said in events:
                    if self.transcribe_s:
                        await asyncio.sleep(self.transcribe_s)
                    yield said
        finally:
            self.listening -= 1


class Talk:
    """A client that says `pieces`, one every `pace_s`, and takes `slow_s` for each response."""

    def __init__(self, script: dict[str, list[Said]], pieces: list[object], slow_s: float = 0.0, pace_s: float = 0.0):
        self.audio, self._pieces, self._slow_s, self._pace_s = SlowAudio(), pieces, slow_s, pace_s
        self.audio.script = {name.encode(): line for name, line in script.items()}
        self.tally, self.answering, self.responses = ConversationBytes(10_000), 0, list[pb.ConverseResponse]()
        self.goes_on = 0  # answers, when its reader was gone
        self.spoken = Spoken(MOST_BYTES, self.tally)
        self.conversation = Conversation(pb.ConverseOptions(), self._answer, self._to_error, 2, 60.0, self.spoken)

    async def run(self) -> None:
        try:
            async with aclosing(self.conversation.responses(self._requests(), self.audio)) as responses:
                async for response in responses:
                    self.responses.append(response)
                    await asyncio.sleep(self._slow_s)
        finally:
            self.goes_on = self.answering

    async def _requests(self) -> AsyncIterator[pb.ConverseRequest]:
        for piece in self._pieces:
            if self._pace_s:
                await asyncio.sleep(self._pace_s)
            yield piece if isinstance(piece, pb.ConverseRequest) else pb.ConverseRequest(audio=str(piece).encode())

    async def _answer(self, request: pb.GenerateRequest, send: Send) -> None:
        self.answering += 1
        try:
            for words in ("It ", "is ", END):
                await asyncio.sleep(0.01)
                await send(delta(words))
        finally:
            self.answering -= 1
            await asyncio.sleep(0)  # what an answer leaves may take a turn

    @staticmethod
    def _to_error(error: Exception) -> pb.BatchError:
        return pb.BatchError(message=str(error))

    def assert_over(self) -> None:
        assert (self.goes_on, self.answering, self.audio.listening) == (0, 0, 0)
        assert (self.spoken._waiting, self.tally.waiting, self.tally._listeners) == (0, 0, [])
        assert asyncio.all_tasks() == {asyncio.current_task()}

    def unfinished(self) -> set[int]:
        """Turns with a question, but without an event that ends their answer."""
        begun = {each.turn for each in self.responses if each.transcript.final}
        return begun - {each.turn for each in self.responses if self._ends(each)}

    @staticmethod
    def _ends(response: pb.ConverseResponse) -> bool:
        last = response.answer.events[-1].delta.text == END if response.HasField("answer") else False
        return last or response.WhichOneof("kind") in ("interrupted", "error")


def transcribes(within_s: float, talk: Talk) -> Talk:
    talk.audio.transcribe_s = within_s
    return talk


SCENES: dict[str, Callable[[], Talk]] = {
    "two turns": lambda: Talk({"a": [STARTED, segment("One?")], "b": [segment("Two?")]}, ["a", "b"], pace_s=0.05),
    "cut off by words": lambda: Talk({"a": [segment("One?")], "b": [partial("No"), segment("No.")]}, ["a", "b"]),
    "cut off before it began": lambda: transcribes(
        0, Talk({"a": [segment("One?"), partial("No"), segment("No.")]}, ["a"])
    ),
    "cut off by the client": lambda: Talk(
        {"a": [segment("One?")], "b": [segment("Two?")]}, ["a", INTERRUPT, "b", INTERRUPT], pace_s=0.025
    ),
    "cut off twice before it can tell that it was": lambda: transcribes(
        0.02, Talk({"a": [segment("One?")], "b": [segment("Two?")]}, ["a", "b", INTERRUPT], slow_s=0.05, pace_s=0.016)
    ),
    "a client that reads slowly": lambda: Talk(
        {"a": [segment("One?")], "b": [partial("No"), segment("No.")]}, ["a", "b"], slow_s=0.05
    ),
    "more than may wait": lambda: Talk({"a": [STARTED], "z": [segment("All?")]}, [*"aaaaaaaaaaaa", "z"]),
}


@pytest.fixture(autouse=True)
def _few_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_AHEAD", 1)


DISTURBANCES: dict[str, Callable[[asyncio.Task[object], Talk], object]] = {
    "cancelled": lambda task, _: task.cancel(),
    "closed": lambda _, talk: talk.conversation.close(),
    "ended": lambda _, talk: talk.conversation.end(KeyUnknown("revoked")),
}


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("how", DISTURBANCES)
def test_a_conversation_that_ends_at_any_turn_of_the_loop_leaves_nothing_behind(name: str, how: str):
    talks = list[Talk]()

    @asynccontextmanager
    async def scene() -> Work:
        talks.append(talk := SCENES[name]())
        yield talk.run()
        talk.assert_over()
        if how == "closed":
            assert talk.unfinished() == set()

    assert disturbed_at_every_turn(scene, lambda task: DISTURBANCES[how](task, talks[-1])) >= 20


@pytest.mark.parametrize("most", [300, 10_000])
@cancelled_at_every_await()
async def test_a_cancelled_client_that_waits_for_bytes_leaves_nothing_behind(most: int) -> Work:
    """`most`: of the tenant, for two messages, and for all."""
    tally = ConversationBytes(most)
    one, other = Spoken(300, tally), Spoken(300, tally)
    for _ in range(2):
        await one.put(b"")
    asyncio.get_running_loop().call_later(0.01, lambda: asyncio.ensure_future(one.get()))
    yield one.put(b"last")
    await asyncio.sleep(1)
    assert tally._listeners == []
    assert tally.waiting == one._waiting == sum(128 + len(each) for each in one._messages)
    async with asyncio.timeout(1):
        await other.put(b"")
        while one._messages:
            await one.get()
        assert await other.get() == b""
    assert tally.waiting == 0


@cancelled_at_every_await()
async def test_a_cancelled_reader_of_speech_loses_none() -> Work:
    tally, taken = ConversationBytes(1_000), list[bytes | None]()
    spoken = Spoken(1_000, tally)

    async def take() -> None:
        taken.append(await spoken.get())

    asyncio.get_running_loop().call_later(0.01, lambda: asyncio.ensure_future(spoken.put(b"said")))
    yield take()
    await asyncio.sleep(1)
    spoken.end()
    while rest := await spoken.get():
        taken.append(rest)
    assert (taken, tally.waiting) == ([b"said"], 0)
