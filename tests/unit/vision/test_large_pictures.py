"""Large pictures whose decoders take most memory are decoded one at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from PIL import Image
from PIL.ImageFile import ImageFile

from services.runtime.deadline import Deadline
from services.vision import pictures
from services.vision.manifest import Preprocessing
from services.vision.pictures import Pictures
from tests.unit.vision.files import encoded, gradient

_SIDE = 64
_SMALL = Preprocessing(resize=(16, 16))


@pytest.fixture
async def two_at_once() -> AsyncIterator[Pictures]:
    made = Pictures(2, 1_000_000, _SIDE * _SIDE)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("kind", "side", "most"), [("WEBP", _SIDE, 1), ("AVIF", _SIDE, 1), ("PNG", _SIDE, 2), ("WEBP", _SIDE // 2, 2)]
)
async def test_large_webp_and_avif_are_decoded_one_at_a_time(
    two_at_once: Pictures, monkeypatch: pytest.MonkeyPatch, kind: str, side: int, most: int
) -> None:
    load, at_once, seen = pictures._load, list[None](), list[int]()

    def slow(file: ImageFile, needed: int) -> Image.Image:
        at_once.append(None)
        seen.append(len(at_once))
        time.sleep(0.05)
        at_once.pop()
        return load(file, needed)

    monkeypatch.setattr(pictures, "_load", slow)
    data, never = encoded(gradient(side, side), kind), Deadline.never()
    await asyncio.gather(*(two_at_once.prepare(data, "images", _SMALL, "float32", never) for _ in range(4)))
    assert max(seen) == most
