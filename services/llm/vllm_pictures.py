"""Checks of a picture before vLLM decodes it, in the process that serves all tenants: its header is read, and nothing
else of it."""

from __future__ import annotations

from io import BytesIO

from services.llm.engine import Message
from services.runtime.errors import InvalidInput

# Not AVIF: its decoder allocates what the AV1 data says, and the header that is read here may say less.
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")


def check(messages: tuple[Message, ...], most_pixels: int) -> None:
    """Raise InvalidInput for what is no picture, and for one that would take too much memory."""
    for index, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            if part.kind == "image":
                _check(f"messages[{index}].parts[{number}].image", part.data, most_pixels)


def _check(field: str, data: bytes, most_pixels: int) -> None:
    from PIL import Image

    try:
        with Image.open(BytesIO(data), formats=_FORMATS) as picture:
            width, height = picture.size
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        raise InvalidInput(field, "a PNG, JPEG, WebP or GIF", f"{len(data)} bytes of something else") from None
    if width * height > most_pixels:
        raise InvalidInput(field, f"at most {most_pixels} pixels", f"{width} × {height}")
