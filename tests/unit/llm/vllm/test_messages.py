"""Conversations in vLLM's words, and pictures that it gets to decode."""

from __future__ import annotations

from io import BytesIO

import pytest
from PIL import Image

from services.llm.engine import Message, Part, ToolCall
from services.llm.size import characters
from services.llm.vllm.messages import check_pictures, has_media, to_chat
from services.runtime.errors import InvalidInput
from tests.unit.conftest import Beside
from tests.unit.vision.files import png

SEEN = Message("user", parts=(Part("text", "This?"), Part("image", data=b"\x89PNG\r\n\x1a\n")))


def name(message: Message, salt: str) -> str:
    """The id by which vLLM caches the picture."""
    (said,) = to_chat((message,), "", salt)
    text, image = said["content"]
    assert text == {"type": "text", "text": "This?"}
    uuid: str = image["uuid"]
    return uuid


def test_a_read_picture_is_reused_for_the_same_salt_alone() -> None:
    other = Message("user", parts=(SEEN.parts[0], Part("image", data=b"\x89PNG\r\n\x1a\n.")))
    assert name(SEEN, "a") == name(SEEN, "a")
    assert len({name(SEEN, "a"), name(SEEN, "b"), name(SEEN, ""), name(other, "a")}) == 4


def test_the_beginning_of_an_answer_is_the_last_message() -> None:
    assert to_chat((Message("user", "Hi."),), "Good", "")[-1] == {"role": "assistant", "content": "Good"}


def test_all_that_is_written_is_counted() -> None:
    assert characters((SEEN, Message("assistant", "ab", tool_calls=(ToolCall("a", "b", "{}"),)))) == 9
    assert has_media((SEEN,))
    assert not has_media((Message("user", "Hi."),))


def picture(width: int, height: int, form: str = "PNG") -> bytes:
    Image.new("1" if form == "PNG" else "L", (width, height)).save(made := BytesIO(), form)
    return made.getvalue()


def asked(*data: bytes) -> tuple[Message, ...]:
    parts = (Part("text", "What is this?"), *(Part("image", data=each) for each in data))
    return (Message("system", "Be brief."), Message("user", parts=parts))


async def test_pictures_of_the_four_kinds_are_taken_beside_the_event_loop(beside: Beside) -> None:
    opened = beside(Image, "open")
    await check_pictures(asked(*(picture(10, 10, kind) for kind in ("PNG", "JPEG", "WEBP", "GIF"))), 100, "acme")
    await check_pictures((Message("user", "Why?"),), 1, "acme")
    assert opened == [True] * 4


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"%PDF-1", r"messages\[1\]\.parts\[1\]\.image: a PNG, JPEG, WebP or GIF, got 6 bytes of something else"),
        (picture(10, 10, "AVIF"), r"\.image: a PNG, JPEG, WebP or GIF"),
        (picture(10, 10)[:20], r"\.image: a PNG, JPEG, WebP or GIF"),
        (picture(11, 10), r"\.image: at most 100 pixels, got 11 × 10"),
        (png(20_000, 20_000, b""), r"\.image: (at most 100 pixels|a PNG)"),  # a header alone, of 400 million pixels
    ],
)
async def test_anything_else_is_refused_before_it_is_decoded(data: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        await check_pictures(asked(data), 100, "acme")
