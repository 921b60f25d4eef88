"""Limits of the audio service's settings that the page of settings does not state."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from services.audio.config import AudioSettings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("language", "english"),
        ("policy", "guess"),
        ("batch_windows", 65),
        ("pause_ms", 99),
        ("max_load", 1.1),
        ("window_s", 31),
        ("overlap_s", -1),
    ],
)
def test_a_value_beyond_its_limits_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        AudioSettings.model_validate({"model": "m", name: value})
