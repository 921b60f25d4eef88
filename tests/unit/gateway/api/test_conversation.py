"""Spoken conversations, with a scripted listener and scripted answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from hedgerow.audio.v1 import audio_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.event_writer import Send
from services.gateway.errors import Idle, KeyUnknown
from services.runtime.errors import InvalidInput, Unavailable
from services.runtime.limits import SPEECH_BYTES
from tests.unit.gateway.api.talking import STARTED, Talk, cut_off, delta, partial, scripted, segment
from tests.unit.gateway.scripted_media import Said, ScriptedAudio

pytestmark = pytest.mark.paused


async def test_speech_is_answered_after_a_pause():
    talk = Talk(scripted(a=[STARTED, partial("What is", 1)], b=[segment("What is latency?")]))
    talk.say(b"a", b"b")
    talk.end()
    responses = [response async for response in talk.responses]
    assert [(each.turn, each.WhichOneof("kind")) for each in responses] == [
        (0, "speech_started"),
        (0, "transcript"),
        (0, "transcript"),
        (0, "answer"),
    ]
    assert responses[1].transcript == pb.Transcript(text="What is", confirmed_words=1)
    assert responses[2].transcript == pb.Transcript(text="What is latency?", confirmed_words=3, final=True)
    assert talk.audio.options.pause_ms == 300


async def test_earlier_turns_go_along_as_many_as_are_kept():
    talk = Talk(scripted(a=[segment("One?")], b=[segment("Two?")], c=[segment("Three?")], d=[segment("Four?")]))
    for piece in (b"a", b"b", b"c", b"d"):
        talk.say(piece)
        await talk.until("answer")
        await asyncio.sleep(0)
    talk.end()
    await talk.rest()
    assert talk.asked[-1] == ["Two?", "re: Two?", "Three?", "re: Three?", "Four?"]


async def test_words_cut_an_answer_off_and_its_text_stays_in_the_conversation():
    talk = Talk(scripted(a=[segment("A story.")], b=[partial("Stop")], c=[segment("Stop it.")]))
    talk.how = talk.forever
    talk.say(b"a")
    await talk.until("answer")
    talk.say(b"b")
    cut = await talk.until("interrupted")
    assert (cut.turn, cut.interrupted.text) == (0, "re: A story.")
    assert talk.left == 1
    talk.say(b"c")
    assert (await talk.until("answer")).turn == 1
    assert talk.asked[-1] == ["A story.", "re: A story.", "Stop it."]
    await talk.responses.aclose()
    assert talk.left == 2


async def test_a_noise_without_words_cuts_nothing_off():
    talk = Talk(scripted(a=[segment("A story.")], b=[STARTED, partial("")]))
    talk.say(b"a", b"b")
    talk.end()
    assert "interrupted" not in await talk.rest()


async def test_a_replaced_answer_is_in_the_conversation_with_its_replacement():
    asked: list[list[str]] = []

    async def replaced(request: pb.GenerateRequest, send: Send) -> None:
        asked.append([message.content for message in request.messages])
        await send(delta("I don't know."))
        await send(pb.GenerateResponse(events=[pb.Event(patch=pb.Patch(stage="llm", text="It is ", replaces=True))]))
        await send(pb.GenerateResponse(events=[pb.Event(patch=pb.Patch(stage="tool:news", text="a fox"))]))
        await send(delta("Paris."))

    talk = Talk(scripted(a=[segment("One?")], b=[segment("Two?")]))
    talk.how = replaced
    for piece in (b"a", b"b"):
        talk.say(piece)
        for _ in range(4):
            await talk.until("answer")
        await asyncio.sleep(0)
    talk.end()
    await talk.rest()
    assert asked[1] == ["One?", "It is Paris.", "Two?"]


async def test_a_question_cut_off_before_its_answer_began_goes_on_with_what_is_said_next():
    talk = await cut_off(a=[segment("What is the capital")], b=[partial("of")], c=[segment("of France?")])
    assert (await talk.until("transcript")).transcript.text == "What is the capital of"
    talk.end()
    assert await talk.rest() == ["transcript", "answer"]
    assert talk.asked == [["What is the capital of France?"]]


async def test_a_question_cut_off_before_its_answer_began_is_asked_again_where_the_words_turn_out_to_be_none():
    talk = await cut_off(a=[segment("What is latency?")], b=[partial("Uh")], c=[partial("")])
    talk.end()
    assert await talk.rest() == ["transcript", "transcript", "answer"]
    assert talk.asked == [["What is latency?"]]


async def test_a_question_cut_off_before_its_answer_began_is_not_asked_again_once_the_client_has_interrupted():
    talk = await cut_off(a=[segment("What is latency?")], b=[partial("Uh")], c=[], d=[partial("")])
    talk.spoken.put_nowait(pb.ConverseRequest(interrupt=pb.Interrupt()))
    talk.say(b"d")
    talk.end()
    assert await talk.rest() == ["transcript"]
    assert talk.asked == []


class QueuedAudio(ScriptedAudio):
    """Transcribes as scripted, whatever the client sends."""

    def __init__(self) -> None:
        super().__init__()
        self.queued: asyncio.Queue[Said | None] = asyncio.Queue()

    async def listen(self, requests, timeout_s, metadata) -> AsyncGenerator[Said, None]:
        while said := await self.queued.get():
            yield said


async def begun_story() -> tuple[QueuedAudio, Talk]:
    """A talk in the middle of its first answer."""
    audio = QueuedAudio()
    talk = Talk(audio)
    talk.how = talk.forever
    audio.queued.put_nowait(segment("A story."))
    await talk.until("answer")
    return audio, talk


@pytest.mark.parametrize("turns", range(8))
async def test_the_client_may_interrupt_an_answer_and_speech_meanwhile_is_asked_after_it(turns: int):
    audio, talk = await begun_story()
    talk.spoken.put_nowait(pb.ConverseRequest(interrupt=pb.Interrupt()))
    for _ in range(turns):
        await asyncio.sleep(0)
    audio.queued.put_nowait(segment("Another."))
    responses = [await anext(talk.responses) for _ in range(3)]
    assert [(each.turn, each.WhichOneof("kind")) for each in responses] == [
        (0, "interrupted"),
        (1, "transcript"),
        (1, "answer"),
    ]
    assert responses[0].interrupted.text == "re: A story."
    assert talk.asked[-1] == ["A story.", "re: A story.", "Another."]
    audio.queued.put_nowait(segment("A third."))
    await talk.until("answer")
    assert talk.asked[-1][-1] == "A third."
    await talk.responses.aclose()


async def test_an_interrupted_answer_is_reported_as_interrupted():
    audio, talk = await begun_story()
    audio.queued.put_nowait(None)
    await asyncio.sleep(0.01)
    talk.spoken.put_nowait(pb.ConverseRequest(interrupt=pb.Interrupt()))
    assert (await anext(talk.responses)).WhichOneof("kind") == "interrupted"
    await talk.responses.aclose()


async def test_a_failed_turn_does_not_end_the_conversation():
    talk = Talk(scripted(a=[segment("One?")], b=[segment("Two?")]))

    async def failing(request: pb.GenerateRequest, send: Send) -> None:
        raise Unavailable("broken")

    talk.how = failing
    talk.say(b"a")
    assert (await talk.until("error")).error.message == "broken"
    talk.how = talk.answer
    talk.say(b"b")
    assert (await talk.until("answer")).turn == 1
    assert talk.asked == [["Two?"]]
    talk.end()
    await talk.rest()


async def test_a_listener_that_fails_ends_the_conversation_with_its_error():
    talk = Talk(ScriptedAudio(error=Unavailable("deaf")))
    with pytest.raises(Unavailable, match="deaf"):
        await talk.rest()


async def test_a_conversation_whose_audio_service_ends_the_stream_ends_with_an_error_while_its_client_speaks():
    audio = QueuedAudio()
    talk = Talk(audio)
    audio.queued.put_nowait(segment("One?"))
    audio.queued.put_nowait(None)
    talk.say(*[bytes(500)] * 10)
    assert (await talk.until("answer")).turn == 0
    with pytest.raises(Unavailable, match="audio: the service ended the stream before its client did"):
        await asyncio.wait_for(talk.rest(), 30)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_options_twice_are_refused_after_what_was_said_before_is_answered():
    talk = Talk(scripted(a=[segment("One?")]))
    talk.say(b"a")
    talk.spoken.put_nowait(pb.ConverseRequest(options=pb.ConverseOptions()))
    assert (await talk.until("answer")).turn == 0
    with pytest.raises(InvalidInput, match="audio or interrupt after the first message, got options"):
        await talk.rest()


async def test_a_conversation_that_is_closed_answers_what_was_said_and_ends():
    talk = Talk(scripted(a=[segment("One?")]))
    talk.say(b"a")
    await talk.until("transcript")
    talk.conversation.close()
    assert await talk.rest() == ["answer"]


async def test_without_any_audio_a_conversation_ends_when_what_was_said_is_answered_and_names_the_limit():
    talk = Talk(scripted(a=[segment("One?")]), idle_s=0.05)
    talk.say(b"a")
    assert (await talk.until("answer")).turn == 0
    with pytest.raises(Idle, match=r"audio: some at least every 0.05 s, got none") as ended:
        await talk.rest()
    assert ended.value.metadata["limit"] == "0.05 s"
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_interruption_is_no_audio():
    talk = Talk(scripted(), idle_s=0.1)

    async def interrupts() -> None:
        while True:
            talk.spoken.put_nowait(pb.ConverseRequest(interrupt=pb.Interrupt()))
            await asyncio.sleep(0.01)

    interrupting = asyncio.create_task(interrupts())
    with pytest.raises(Idle):
        await asyncio.wait_for(talk.rest(), 5)
    interrupting.cancel()


async def test_a_conversation_that_is_ended_says_only_why():
    talk = Talk(scripted(a=[STARTED] * 100))
    talk.say(b"a")
    await talk.until("speech_started")
    while not talk.conversation._out.full():
        await asyncio.sleep(0)
    talk.conversation.end(KeyUnknown("revoked"))
    with pytest.raises(KeyUnknown, match="revoked"):
        await talk.rest()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_client_that_is_faster_than_the_listener_is_not_read_and_nothing_is_lost():
    deaf, recordings, read = asyncio.Event(), list[bytes](), 0

    class Slow(ScriptedAudio):
        async def listen(self, requests, timeout_s, metadata):
            await deaf.wait()
            async for request in requests:
                recordings.append(request.audio)
            yield Said(summary=audio_pb2.StreamSummary())

    talk = Talk(Slow())

    async def requests() -> AsyncIterator[pb.ConverseRequest]:
        nonlocal read
        for number in range(50):
            read += 1
            yield pb.ConverseRequest(audio=bytes([number]) * 72)  # 200 bytes with what keeping it costs

    responses = talk.conversation.responses(requests(), talk.audio)
    ending = asyncio.create_task(anext(responses, None))
    for _ in range(100):
        await asyncio.sleep(0)
    assert read == 6  # five of them are the 1,000 bytes that may wait, and one is in hand
    deaf.set()
    await ending
    assert recordings[1:] == [bytes([number]) * 72 for number in range(50)]


async def test_a_message_that_the_audio_service_would_refuse_is_refused_here():
    talk = Talk(scripted(a=[segment("One?")]))
    talk.say(b"a", bytes(SPEECH_BYTES + 1))
    assert (await talk.until("answer")).turn == 0
    with pytest.raises(InvalidInput, match="audio: at most 262144 bytes in a message, got 262145 bytes"):
        await talk.rest()
