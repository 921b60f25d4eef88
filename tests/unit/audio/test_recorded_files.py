"""Recordings as phones, browsers and music players write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.audio.sounds import cover_picture, encoded, from_a_running_stream, is_tone, muxed, with_pre_skip
from tests.unit.audio.test_audio_decoding import decode, is_second_of_tone


@pytest.mark.parametrize("channels", [1, 2])
def test_ogg_opus_decodes_to_the_same_sound_and_always_has_48_khz(channels: int):
    recording = decode(encoded(1, 48_000, channels, "OGG", "OPUS"))
    assert (recording.format, recording.rate_hz, recording.channels) == ("OGG/OPUS", 48_000, channels)
    assert abs(recording.duration_s - 1) < 0.02
    assert is_tone(recording.audio)


@pytest.mark.parametrize(("rate", "how"), [(44_100, {}), (48_000, {"movflags": "frag_keyframe+empty_moov"})])
def test_aac_of_phones_and_browsers_decodes_to_the_same_sound_and_whole_frames(rate: int, how: dict[str, str]):
    recording = decode(muxed("mp4", "aac", rate=rate, piped=bool(how), **how))
    assert (recording.format, recording.rate_hz) == ("M4A", rate)
    assert 1 <= recording.duration_s < 1 + 2 * 1_024 / rate  # frames of 1,024 samples
    assert is_tone(recording.audio)


def test_ogg_opus_whose_beginning_is_not_played_is_whole():
    recording = decode(with_pre_skip(encoded(1, 48_000, 1, "OGG", "OPUS"), 3_840))
    assert 0.9 < recording.duration_s < 0.95


@pytest.mark.parametrize("seconds", [0.5, 3_000])
def test_ogg_opus_that_was_cut_out_of_a_running_stream_is_whole(seconds: float):
    whole = encoded(1, 48_000, 1, "OGG", "OPUS")
    recording = decode(from_a_running_stream(whole, seconds))
    assert recording.duration_s == decode(whole).duration_s
    assert is_tone(recording.audio)


@pytest.mark.parametrize("file", [encoded(1, 16_000, 1, "MP3", "MPEG_LAYER_III"), encoded(1, form="FLAC")])
def test_a_cover_picture_is_not_decoded(file: bytes):
    data = cover_picture(8_000)  # 192 MB of pixels
    assert len(data) < 250_000
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of memory so far
    before = _most_kib()
    assert is_second_of_tone(decode(data + file))
    assert _most_kib() - before < 64 * 1024


def _most_kib() -> int:
    """The largest memory that this process has had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
