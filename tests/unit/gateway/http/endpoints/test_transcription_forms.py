"""Forms with a recording, as clients of several languages write them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from services.gateway.admission.intake import DEFAULT_LIMITS
from services.gateway.http.endpoints import transcriptions
from services.gateway.http.endpoints.transcriptions import read_form
from services.gateway.http.server.exchange import Bounds, Exchange
from services.runtime.errors import InvalidInput

SOUND = b"RIFF\xff\xfe\r\n--"


def written(disposition: str, *more: str) -> bytes:
    head = (f"Content-Disposition: form-data; {disposition}", *more, "", "")
    model = b'--B\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n--B--\r\n'
    return b"--B\r\n" + "\r\n".join(head).encode() + SOUND + b"\r\n" + model


def exchange(body: bytes, kind: bytes) -> Exchange:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body}

    async def send(message: object) -> None:
        raise AssertionError(message)

    return Exchange(
        {"headers": [(b"content-type", kind)]}, receive, send, Bounds(1_000_000, 1_000, DEFAULT_LIMITS, None)
    )


@pytest.mark.parametrize(
    "disposition",
    [
        'name="file"; filename="a.wav"',
        "name=file; filename=a.wav",
        'name="file"; filename="録音.wav"',
        "name=\"file\"; filename*=UTF-8''%E9%8C%B2.wav",  # requests with urllib3 1
        'name="file"',
    ],
)
@pytest.mark.parametrize(
    "kind", [b"multipart/form-data; boundary=B", b'Multipart/Form-Data; boundary="B"; charset=UTF-8']
)
async def test_a_recording_is_found_however_its_file_is_named(disposition: str, kind: bytes) -> None:
    form = await read_form(exchange(written(disposition, "Content-Type: audio/wav"), kind))
    assert (form.file, form.fields.text("model")) == (SOUND, "whisper-1")


@pytest.mark.parametrize("charset", [b"punycode", b"undefined", b"none"])
async def test_a_charset_whose_decoder_may_be_slow_is_refused(charset: bytes) -> None:
    with pytest.raises(InvalidInput, match=f"content-type: a form in UTF-8, got {charset.decode()}"):
        await read_form(exchange(written('name="file"'), b"multipart/form-data; boundary=B; charset=" + charset))


async def test_a_long_recording_is_parsed_in_pieces_between_which_the_event_loop_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = list[str]()

    async def give_way(tenant: str) -> None:
        turns.append(tenant)

    monkeypatch.setattr(transcriptions, "give_way", give_way)
    sound = SOUND + b"\r\n--" * 200_000
    sent = exchange(written('name="file"').replace(SOUND, sound), b"multipart/form-data; boundary=B")
    sent.credential = cast(Any, SimpleNamespace(tenant=SimpleNamespace(name="acme")))
    assert (await read_form(sent)).file == sound
    assert turns == ["acme"] * 3


async def test_a_form_that_only_its_parser_would_not_take_for_more_parts_is_refused() -> None:
    form = written('name="file"; filename="a"').replace(SOUND, b"\r\n--Bx" * 129)
    with pytest.raises(InvalidInput, match="body: a form with at most 64 fields and one file, got more"):
        await read_form(exchange(form, b"multipart/form-data; boundary=B"))


async def test_a_form_without_a_recording_is_refused() -> None:
    with pytest.raises(InvalidInput, match="file: a file, got none"):
        await read_form(exchange(written('name="sound"; filename="a.wav"'), b"multipart/form-data; boundary=B"))
