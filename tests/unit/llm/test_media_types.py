"""What a provider is told that a picture is."""

from __future__ import annotations

from io import BytesIO

import pytest
from PIL import Image

from services.llm.media import image_type


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "AVIF"])
def test_a_picture_has_the_media_type_of_its_content(kind: str) -> None:
    Image.new("RGB", (8, 8)).save(made := BytesIO(), kind)
    assert image_type(made.getvalue(), "messages[0].parts[0]") == f"image/{kind.lower()}"
