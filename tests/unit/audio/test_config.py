"""Settings of the audio service: limits and derived values."""

from __future__ import annotations

import os

import pytest
from pydantic import ValidationError

from services.audio.config import AudioSettings
from services.runtime.process.config import load


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("HEDGEROW_"):
            monkeypatch.delenv(name)


def test_a_model_is_all_it_needs() -> None:
    settings = load(AudioSettings, ["--model", "models/demo-whisper"], "audio")
    assert settings.address == "127.0.0.1:50056"
    assert (settings.device, settings.compute_type, settings.language) == ("auto", "auto", "")


def test_without_a_model_it_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        load(AudioSettings, [], "audio")
    assert exit_.value.code == 2
    assert "audio: model: Field required" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("device", "tpu"), ("language", "english"), ("policy", "guess"), ("max_file_bytes", "10")],
        *[("max_duration_s", "0"), ("batch_windows", "65")],
    ],
)
def test_a_setting_beyond_its_limits_is_refused_by_name(
    name: str, value: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEDGEROW_AUDIO_MODEL", "m")
    monkeypatch.setenv(f"HEDGEROW_AUDIO_{name.upper()}", value)
    with pytest.raises(SystemExit):
        load(AudioSettings, [], "audio")
    assert f"audio: {name}: " in capsys.readouterr().err


@pytest.mark.parametrize(("name", "value"), [("pause_ms", 99), ("max_load", 1.1), ("window_s", 31), ("overlap_s", -1)])
def test_code_is_held_to_the_limits_of_what_it_alone_may_pass(name: str, value: float) -> None:
    with pytest.raises(ValidationError, match=name):
        AudioSettings.model_validate({"model": "m", name: value})
