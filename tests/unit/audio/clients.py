"""Messages that clients of the audio service send, and the answers that they get."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hedgerow.audio.v1 import audio_pb2
from services.runtime.errors import InvalidInput
from services.runtime.rpc.boundary import Call
from tests.unit.audio.scripted import Service, call, sent
from tests.unit.audio.sounds import tone

START = Callable[..., Awaitable[Service]]
S16 = audio_pb2.AudioFormat(encoding=audio_pb2.ENCODING_PCM_S16LE)


def file(data: bytes, size: int = 1_000, **options: Any) -> list[audio_pb2.TranscribeRequest]:
    """A recording in pieces."""
    pieces = [data[at : at + size] for at in range(0, len(data), size)] or [b""]
    requests = [audio_pb2.TranscribeRequest(data=piece) for piece in pieces]
    requests[0].options.CopyFrom(audio_pb2.TranscribeOptions(**options))
    return requests


def live(seconds: float, **options: Any) -> list[audio_pb2.TranscribeStreamRequest]:
    """The options, then audio in messages of 100 ms."""
    data = (tone(seconds) * 32_767).astype("<i2").tobytes()
    pieces = [data[at : at + 3_200] for at in range(0, len(data), 3_200)]
    first = audio_pb2.TranscribeStreamRequest(options=audio_pb2.StreamOptions(**{"format": S16, **options}))
    return [first, *(audio_pb2.TranscribeStreamRequest(audio=piece) for piece in pieces)]


async def listen(
    service: Service, requests: Any, seconds: float = 10, whose: Call | None = None
) -> list[audio_pb2.TranscribeStreamResponse]:
    source = requests if hasattr(requests, "__aiter__") else sent(requests)
    return [reply async for reply in service.servicer.TranscribeStream(source, whose or call(seconds))]


async def refusal(replies: Awaitable[Any]) -> str:
    with pytest.raises(InvalidInput) as caught:
        await replies
    return caught.value.message
