"""Media types of pictures and recordings that are sent to providers."""

from __future__ import annotations

from io import BytesIO

import pytest
from PIL import Image

from services.llm.dialects.media import audio_format, image_type
from services.runtime.errors import InvalidInput


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "AVIF"])
def test_a_picture_has_the_media_type_of_its_content(kind: str) -> None:
    Image.new("RGB", (8, 8)).save(made := BytesIO(), kind)
    assert image_type(made.getvalue(), "messages[0].parts[0]") == f"image/{kind.lower()}"


@pytest.mark.parametrize(
    ("begins", "name"),
    [
        (b"RIFF\x24\0\0\0WAVEfmt ", "wav"),
        (b"fLaC\0\0\0\x22", "flac"),
        (b"OggS\0\x02\0\0", "opus"),
        (b"ID3\x04\0\0", "mp3"),
        (b"\xff\xfb\x90\x64", "mp3"),
        (b"\xff\xf3\x40\xc4", "mp3"),
    ],
)
def test_a_recording_has_the_name_that_openais_api_has_for_it(begins: bytes, name: str) -> None:
    assert audio_format(begins, "messages[0].parts[0]") == name


@pytest.mark.parametrize("begins", [b"", b"\xff", b"\xff\xf1\x50\x80", b"RIFF\0\0\0\0AVI ", b"OggX"])
def test_a_recording_of_another_kind_is_refused_by_name(begins: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"parts\[0\]\.audio: WAV, FLAC, MP3 or Opus, got \d+ bytes"):
        audio_format(begins, "messages[0].parts[0]")
