"""Speech, written down while it is spoken."""

from __future__ import annotations

import asyncio
import signal

import numpy as np
import pytest
from jiwer import wer

from hedgerow.audio.v1 import audio_pb2
from tests.integration.audio.service import (
    F32,
    FOX,
    FOX_TEXT,
    FRANCE,
    FRANCE_TEXT,
    OPUS,
    RATE,
    S16,
    SEVEN,
    SEVEN_TEXT,
    Service,
    begin,
    messages,
    plain,
    silence,
    speech,
    spoken,
)

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]
SOONER_S = 0.005  # for each 20 ms, where the result depends on the audio and not on the time at which it comes


@pytest.mark.parametrize(
    ("encoding", "rate", "channels"),
    [(S16, 48_000, 2), (F32, 44_100, 1), (OPUS, 48_000, 1)],
)
async def test_speech_in_any_encoding_is_written_down_while_it_is_spoken(
    service: Service, encoding: int, rate: int, channels: int
) -> None:
    requests = spoken(
        begin(encoding, rate, channels), messages(speech(FRANCE), encoding, rate, channels), each_s=SOONER_S
    )
    replies = [reply async for reply in service.hear(requests)]
    summary = replies[-1].summary
    assert plain(summary.text) == FRANCE_TEXT
    assert summary.audio_s == pytest.approx(len(speech(FRANCE)) / RATE, abs=0.1)
    assert 0 < summary.speech_s < summary.audio_s
    assert summary.busy_s > 0


@pytest.mark.parametrize("policy", [audio_pb2.POLICY_LOCAL_AGREEMENT, audio_pb2.POLICY_WINDOWS])
async def test_every_policy_closes_a_segment_at_a_pause(service: Service, policy: int) -> None:
    audio = np.concatenate([speech(FRANCE), silence(1.0), speech(SEVEN), silence(0.5)])
    requests = spoken(begin(policy=policy), messages(audio), each_s=SOONER_S)
    replies = [reply async for reply in service.hear(requests)]
    kinds = [reply.WhichOneof("kind") for reply in replies]
    assert (kinds.count("speech_started"), kinds.count("segment"), kinds[-1]) == (2, 2, "summary")
    assert wer(f"{FRANCE_TEXT} {SEVEN_TEXT}", plain(replies[-1].summary.text)) <= 0.1, replies[-1].summary.text


async def test_partial_text_and_a_closed_segment_come_before_the_speaker_ends(service: Service) -> None:
    still_open = asyncio.Event()
    audio = np.concatenate([speech(FRANCE), silence(1.2)])
    call = service.hear(spoken(begin(), messages(audio), then=still_open))
    kinds = []
    async for reply in call:
        kinds.append(reply.WhichOneof("kind"))
        if kinds[-1] == "segment":
            assert plain(reply.segment.text) == FRANCE_TEXT
            break
    assert "partial" in kinds
    still_open.set()
    assert [reply.WhichOneof("kind") async for reply in call][-1] == "summary"


async def test_two_streams_are_transcribed_concurrently(service: Service) -> None:
    async def listen(name: str) -> list[audio_pb2.TranscribeStreamResponse]:
        requests = spoken(begin(), messages(np.concatenate([speech(name), silence(0.8)])))
        return [reply async for reply in service.hear(requests)]

    france, fox = await asyncio.gather(listen(FRANCE), listen(FOX))
    assert plain(france[-1].summary.text) == FRANCE_TEXT
    assert wer(FOX_TEXT, plain(fox[-1].summary.text)) <= 0.2, fox[-1].summary.text


async def test_sigterm_ends_a_stream_with_its_transcript(own: Service) -> None:
    audio = np.concatenate([speech(FRANCE), silence(1.0)])
    call = own.hear(spoken(begin(), messages(audio), then=asyncio.Event()))
    replies = []
    async for reply in call:
        replies.append(reply)
        if reply.WhichOneof("kind") == "segment":
            own.process.signal(signal.SIGTERM)
    assert plain(replies[-1].summary.text) == FRANCE_TEXT
    assert await asyncio.wait_for(own.process.wait(), 30) == 0
