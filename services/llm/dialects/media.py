"""The media types of pictures and recordings, by their first bytes: providers require them."""

from __future__ import annotations

from services.runtime.errors import InvalidInput


def image_type(data: bytes, where: str) -> str:
    """The media type. Raises InvalidInput for any other content. Not every provider takes each of them."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data[4:8] == b"ftyp" and data[8:12] in (b"avif", b"avis"):
        return "image/avif"
    raise InvalidInput(f"{where}.image", "PNG, JPEG, WebP, GIF or AVIF", f"{len(data)} bytes of another kind")


def audio_format(data: bytes, where: str) -> str:
    """The name that OpenAI's API has for it. Raises InvalidInput likewise."""
    if data.startswith(b"RIFF") and data[8:12] == b"WAVE":
        return "wav"
    if data.startswith(b"fLaC"):
        return "flac"
    if data.startswith(b"OggS"):
        return "opus"
    frame = len(data) > 1 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2  # of MPEG's layer III
    if data.startswith(b"ID3") or frame:
        return "mp3"
    raise InvalidInput(f"{where}.audio", "WAV, FLAC, MP3 or Opus", f"{len(data)} bytes of another kind")
