"""Pictures that vLLM gets to decode."""

from __future__ import annotations

from io import BytesIO
from threading import get_ident
from typing import Any

import pytest
from PIL import Image

from services.llm.engine import Message, Part
from services.llm.vllm.messages import check_pictures
from services.runtime.errors import InvalidInput
from tests.unit.vision.files import png


def picture(width: int, height: int, form: str = "PNG") -> bytes:
    Image.new("1" if form == "PNG" else "L", (width, height)).save(made := BytesIO(), form)
    return made.getvalue()


def asked(*data: bytes) -> tuple[Message, ...]:
    parts = (Part("text", "What is this?"), *(Part("image", data=each) for each in data))
    return (Message("system", "Be brief."), Message("user", parts=parts))


async def test_pictures_of_the_four_kinds_are_taken_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, opened = set[int](), Image.open

    def open_(*given: Any, **named: Any) -> Image.Image:
        threads.add(get_ident())
        return opened(*given, **named)

    monkeypatch.setattr(Image, "open", open_)
    await check_pictures(asked(*(picture(10, 10, kind) for kind in ("PNG", "JPEG", "WEBP", "GIF"))), 100, "acme")
    await check_pictures((Message("user", "Why?"),), 1, "acme")
    assert threads
    assert get_ident() not in threads


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
