"""Contradictions in the settings of the vision service are refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from services.vision.config import VisionSettings


def test_the_queue_has_room_for_one_request() -> None:
    with pytest.raises(ValidationError, match="max_queue: at least max_images"):
        VisionSettings(max_queue=1)
