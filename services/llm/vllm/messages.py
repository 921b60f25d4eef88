"""Conversations in vLLM's words, which are OpenAI's, and a name for each picture and recording.

Pictures are checked before vLLM decodes them in the process that serves all tenants: only the header is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from io import BytesIO
from typing import Any

from services.llm.dialects.documents import picture_data
from services.llm.dialects.openai_request import to_messages
from services.llm.engine import Message, Original
from services.runtime.aside import LARGE_BYTES, aside
from services.runtime.errors import InvalidInput


def to_chat(messages: tuple[Message, ...], prefix: str, salt: str) -> list[dict[str, Any]]:
    """The messages for vLLM's renderer. A prefix is the last message, left open.

    vLLM keeps what it has read of media by their `uuid`, for all tenants: so that holds the salt (ADR 13).
    """
    conversation = to_messages(messages)
    if prefix:
        conversation.append({"role": "assistant", "content": prefix})
    for part in _media(conversation):
        medium = part[part["type"]]
        part["uuid"] = hashlib.sha256(f"{salt}\0{medium.get('url') or medium['data']}".encode()).hexdigest()
    return conversation


def has_media(messages: tuple[Message, ...]) -> bool:
    """Whether there is a picture or a recording."""
    return any(part.kind != "text" for message in messages for part in message.parts)


def takes_picture(original: Original, place: str, given: str) -> bool:
    """Whether the field at `place`, whose JSON is `given`, is a picture in a message. vLLM would fetch one by URL."""
    return place in original.documents and bool(picture_data(given))


def _media(conversation: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for message in conversation:
        if isinstance(message["content"], list):
            yield from (part for part in message["content"] if part["type"] != "text")


# Not AVIF: its decoder allocates what the AV1 data says, and the header that is read here may say less.
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")


async def check_pictures(messages: tuple[Message, ...], most_pixels: int, tenant: str) -> None:
    """Raise InvalidInput for data that is no picture, and for a picture that would take too much memory. Headers are
    read beside the event loop, because one may have 100,000 chunks, or compressed ones."""
    if has_media(messages):
        await aside(tenant, LARGE_BYTES + 1, partial(_check_all, messages, most_pixels))


def _check_all(messages: tuple[Message, ...], most_pixels: int) -> None:
    for index, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            if part.kind in ("image", "document"):
                data = part.data or picture_data(part.given)
                _check(f"messages[{index}].parts[{number}].image", data, most_pixels)


def _check(field: str, data: bytes, most_pixels: int) -> None:
    from PIL import Image

    try:
        with Image.open(BytesIO(data), formats=_FORMATS) as picture:
            width, height = picture.size
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        raise InvalidInput(field, "a PNG, JPEG, WebP or GIF", f"{len(data)} bytes of something else") from None
    if width * height > most_pixels:
        raise InvalidInput(field, f"at most {most_pixels} pixels", f"{width} × {height}")
