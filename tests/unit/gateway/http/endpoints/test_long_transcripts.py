"""Transcripts of long recordings are written beside the event loop."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from hedgerow.audio.v1 import audio_pb2
from services.gateway.http.endpoints import transcriptions
from services.gateway.http.endpoints.transcriptions import Transcriptions
from tests.unit.gateway.http.endpoints.calling import admission, wire
from tests.waiting import until


class Recorded:
    """An audio service that hears so many words."""

    def __init__(self, words: int):
        self._words = [audio_pb2.Word(text="word")] * words

    async def recording(self, *_: Any) -> AsyncIterator[audio_pb2.TranscribeResponse]:
        yield audio_pb2.TranscribeResponse(segment=audio_pb2.Segment(text="words", words=self._words))
        yield audio_pb2.TranscribeResponse(summary=audio_pb2.TranscribeSummary(text="words"))


def form(**fields: str) -> bytes:
    parts = [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{text}' for name, text in fields.items()]
    parts.append('Content-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF')
    body = "".join(f"--B\r\n{part}\r\n" for part in parts) + "--B--\r\n"
    kind = "content-type: multipart/form-data; boundary=B"
    head = ("POST / HTTP/1.1", kind, f"content-length: {len(body)}", "", body)
    return "\r\n".join(head).encode()


@pytest.mark.parametrize(("how", "writer"), [("verbose_json", "_segment"), ("srt", "subtitles")])
@pytest.mark.parametrize(("words", "large"), [(10, False), (2_000, True)])
async def test_many_words_are_written_beside_the_event_loop(
    how: str, writer: str, words: int, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, write = list[int](), getattr(transcriptions, writer)

    def noted(*given: Any) -> Any:
        threads.append(threading.get_ident())
        return write(*given)

    monkeypatch.setattr(transcriptions, writer, noted)
    permit = SimpleNamespace(succeeded=lambda _: None, withdrawn=lambda: None)
    audio: Any = SimpleNamespace(client=Recorded(words), breaker=SimpleNamespace(enter=lambda tenant: permit))
    sent = wire(Transcriptions(admission(), audio))
    await sent.send(form(response_format=how))
    await until(lambda: sent.statuses, 60)
    await sent.end()
    assert sent.statuses == [200]
    assert [each != threading.get_ident() for each in threads] == [large]
