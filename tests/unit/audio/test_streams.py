"""Streams that the audio service transcribes with a scripted model, as their clients see it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from hedgerow.audio.v1 import audio_pb2
from services.audio.errors import GaveWay, Idle, StreamsFull
from services.runtime.errors import InvalidInput, Unavailable
from tests.unit.audio.clients import START, listen, live, refusal
from tests.unit.audio.scripted import call, sent
from tests.waiting import until


async def test_a_stream_comes_back_as_it_is_transcribed(service: START):
    running = await service()
    replies = await listen(running, live(2))
    kinds = [reply.WhichOneof("kind") for reply in replies]
    assert kinds == ["partial", "segment", "partial", "segment", "summary"]
    assert replies[0].partial.text == "w0"
    summary = replies[-1].summary
    assert (summary.text, summary.model, summary.audio_s) == ("w0 w0", "scripted", pytest.approx(2))
    assert summary.busy_s > 0


async def test_a_stream_is_transcribed_by_its_options_or_the_services_settings(service: START):
    running = await service(policy="windows", pause_ms=700, window_s=4)
    await listen(running, live(0.1))
    await listen(running, live(0.1, policy=audio_pb2.POLICY_LOCAL_AGREEMENT, pause_ms=100, language="de"))
    default, chosen = (listener.settings for listener in running.listeners)
    assert (default.policy, default.pause_ms, default.window_s) == ("windows", 700, 4)
    assert (chosen.policy, chosen.pause_ms) == ("local_agreement", 100)


@pytest.mark.parametrize(("asked", "language"), [("", "de"), ("en", "en")])
async def test_a_stream_has_the_language_of_its_transcript(service: START, asked: str, language: str):
    replies = await listen(await service(), live(1, language=asked))
    assert [reply.segment.language for reply in replies if reply.HasField("segment")] == [language]
    assert replies[-1].summary.language == language


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": None}, "options.format.encoding: ENCODING_PCM_S16LE, ENCODING_PCM_F32LE or ENCODING_OPUS, got 0"),
        ({"format": {"encoding": 9}}, "ENCODING_OPUS, got 9"),
        (
            {"format": {"encoding": 1, "sample_rate_hz": 7_999}},
            "options.format.sample_rate_hz: 8000 to 48000, got 7999",
        ),
        ({"format": {"encoding": 1, "sample_rate_hz": -1}}, "options.format.sample_rate_hz: 8000 to 48000, got -1"),
        ({"format": {"encoding": 1, "channels": 3}}, "options.format.channels: 1 or 2, got 3"),
        ({"pause_ms": 99}, "options.pause_ms: 100 to 5000, got 99"),
        ({"pause_ms": 0}, "options.pause_ms: 100 to 5000, got 0"),
        ({"policy": 9}, "options.policy: POLICY_WINDOWS or POLICY_LOCAL_AGREEMENT, got 9"),
        ({"language": "English"}, "options.language: one that the model knows (de, en…), got English"),
    ],
)
async def test_options_outside_the_limits_are_refused(service: START, options: dict[str, Any], message: str):
    assert message in await refusal(listen(await service(), live(0.1, **options)))


async def test_a_stream_begins_with_its_options(service: START):
    message = "options: required in the first message, got none"
    assert await refusal(listen(await service(), live(0.2)[1:])) == message
    assert await refusal(listen(await service(), [])) == message


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (live(0.1)[0], "options: only in the first message, got in a later one"),
        (audio_pb2.TranscribeStreamRequest(audio=bytes(300_000)), "audio: at most 262144 bytes in a message"),
    ],
)
async def test_a_transcript_before_a_bad_message_still_arrives(
    service: START, extra: audio_pb2.TranscribeStreamRequest, message: str
):
    running = await service()
    replies = running.servicer.TranscribeStream(sent([*live(2), extra]), call())
    kinds = [(await anext(replies)).WhichOneof("kind") for _ in range(4)]
    assert kinds == ["partial", "segment"] * 2
    assert message in await refusal(anext(replies))


async def test_an_endless_stream_is_ended_by_its_audio(service: START):
    running = await service(max_stream_s=2, max_ahead_ms=60_000)
    assert await refusal(listen(running, live(30))) == "audio: at most 2 s of audio in a stream, got more"
    assert 2 <= running.listeners[0].audio_s < 2.2


async def test_a_stream_that_sends_hardly_anything_is_ended_by_the_clock(service: START):
    running = await service(max_stream_s=0.2)
    with pytest.raises(InvalidInput, match=r"audio: at most 0.2 s of time in a stream"):
        await listen(running, sent(live(0.1), then=asyncio.Event()))


async def test_a_stream_without_audio_is_let_go(service: START):
    running, nothing = await service(idle_timeout_ms=100), audio_pb2.TranscribeStreamRequest()

    async def beats() -> AsyncIterator[audio_pb2.TranscribeStreamRequest]:
        yield live(0.1)[0]
        while True:
            await asyncio.sleep(0.01)
            yield nothing

    with pytest.raises(Idle):
        await asyncio.wait_for(listen(running, beats()), 5)
    assert running.admission.streams == 0


class Eager:
    """A client that sends a minute of audio as fast as it is read; `read` counts its messages."""

    read = 0

    async def messages(self) -> AsyncIterator[audio_pb2.TranscribeStreamRequest]:
        for request in live(60):
            self.read += 1
            yield request


async def test_a_client_that_is_faster_than_real_time_is_not_read(service: START):
    running, client = await service(max_ahead_ms=2_000), Eager()
    task = asyncio.create_task(listen(running, client.messages()))
    await until(lambda: running.recognizer.steps >= 2)
    assert client.read <= 1 + 30  # two seconds ahead, and one that has gone by at most
    task.cancel()
    await asyncio.wait([task])


async def test_audio_is_read_while_the_model_works_and_no_more_than_may_wait(service: START):
    running, client = await service(max_ahead_ms=600_000), Eager()
    running.recognizer.going.clear()
    task = asyncio.create_task(listen(running, client.messages()))
    await until(running.recognizer.began.is_set)
    await until(lambda: client.read > 50)
    for _ in range(20):
        await asyncio.sleep(0)
    assert client.read < 120
    task.cancel()
    await asyncio.wait([task])


async def test_one_stream_too_many_is_refused_and_the_others_go_on(service: START):
    running, closed = await service(max_streams=1), asyncio.Event()
    first = asyncio.create_task(listen(running, sent(live(1), then=closed)))
    await until(lambda: running.admission.streams == 1)
    with pytest.raises(StreamsFull, match="streams: at most 1, got one more"):
        await listen(running, live(1))
    model = await running.servicer.GetModel(audio_pb2.GetModelRequest(), call())
    assert (model.name, model.streams, model.max_streams) == ("scripted", 1, 1)
    closed.set()
    assert (await first)[-1].summary.text == "w0"
    assert running.admission.streams == 0


@pytest.mark.parametrize(("peer", "believed"), [("", True), ("gateway", True), ("operator", False)])
async def test_a_stream_gives_way_to_a_tenant_that_has_fewer_as_only_gateways_name_it(
    service: START, peer: str, believed: bool
):
    running = await service(max_streams=2)
    of_a, of_b = (call(tenant=tenant, peer=peer) for tenant in "ab")
    held = [asyncio.create_task(listen(running, sent(live(1), then=asyncio.Event()), whose=of_a)) for _ in range(2)]
    await until(lambda: running.admission.streams == 2)
    for refused in (of_a,) if believed else (of_a, of_b):
        with pytest.raises(StreamsFull):
            await listen(running, live(1), whose=refused)
    if believed:
        assert (await listen(running, live(1), whose=of_b))[-1].summary.text == "w0"
        done, _ = await asyncio.wait(held, return_when=asyncio.FIRST_COMPLETED)
        with pytest.raises(GaveWay, match="this stream was preempted"):
            await done.pop()
    for task in held:
        task.cancel()
    await asyncio.wait(held)


async def test_draining_ends_a_stream_with_its_transcript(service: START):
    running = await service()
    task = asyncio.create_task(listen(running, sent(live(2), then=asyncio.Event())))
    await until(lambda: running.recognizer.steps == 2)
    running.servicer.drain()
    assert (await asyncio.wait_for(task, 5))[-1].summary.text == "w0 w0"
    with pytest.raises(Unavailable):
        await listen(running, live(1))


async def test_a_stream_whose_time_is_over_ends_with_its_transcript(service: START):
    running = await service()
    replies = await listen(running, sent(live(2), then=asyncio.Event()), seconds=0.9)
    assert replies[-1].summary.text == "w0 w0"


async def test_a_client_that_reads_no_answers_loses_its_stream(service: START, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("services.audio.servicer._LEAVE_S", 0.0)
    running = await service(max_stream_s=1.05)

    async def takes_one() -> None:
        replies = running.servicer.TranscribeStream(sent(live(1)), call())
        async with aclosing(replies):
            await anext(replies)
            await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(takes_one())
    assert running.admission.streams == 0


async def test_a_cancelled_stream_leaves_nothing_behind(service: START):
    running = await service()
    before = len(asyncio.all_tasks())
    task = asyncio.create_task(listen(running, sent(live(2), then=asyncio.Event())))
    await until(lambda: running.recognizer.steps == 2)
    task.cancel()
    await asyncio.wait([task])
    assert running.admission.streams == 0
    assert len(asyncio.all_tasks()) == before
