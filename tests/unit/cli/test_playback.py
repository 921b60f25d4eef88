"""A recording at its own speed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

from hedgerow import AudioFormat, InvalidArgument
from hedgerow_cli.playback import as_pcm, opened


def test_channels_become_one_and_what_is_too_loud_is_cut() -> None:
    samples = np.array([[0.5, 0.0], [1.0, 1.0], [-1.0, -1.0], [2.0, 2.0]], np.float32)
    assert np.frombuffer(as_pcm(samples), "<i2").tolist() == [8_192, 32_767, -32_768, 32_767]


@pytest.mark.parametrize("suffix", ["wav", "flac", "mp3", "ogg"])
async def test_blocks_come_when_they_would_have_been_spoken_and_join_to_what_the_file_holds(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 100.0)
    path, time_s = tmp_path / f"talk.{suffix}", np.arange(96_000) / 16_000
    loudness = 0.1 * (np.sin(2 * np.pi * 3 * time_s) > 0)  # an MP3 saves bits in the pauses for what is loud
    soundfile.write(path, loudness * np.random.default_rng(7).normal(size=96_000), 16_000)
    whole, _ = soundfile.read(path, dtype="float32", always_2d=True)
    with opened(path) as playback:
        assert playback.format == AudioFormat("pcm_s16le", 16_000, 1)
        blocks = [block async for block in playback.blocks()]
    assert slept[:2] == pytest.approx([0.1, 0.2])
    assert [len(block) for block in blocks[:2]] == [3_200, 3_200]
    expected = np.frombuffer(as_pcm(whole), "<i2").astype(int)
    assert np.abs(np.frombuffer(b"".join(blocks), "<i2") - expected).max() <= 1
    assert capfd.readouterr().err == ""


def test_a_pipe_is_refused() -> None:
    reading, writing = os.pipe()
    try:
        with (
            pytest.raises(InvalidArgument, match="audio: a file to play, got /dev/fd/"),
            opened(Path(f"/dev/fd/{reading}")),
        ):
            pass
    finally:
        os.close(reading)
        os.close(writing)


def test_a_failure_of_what_plays_a_recording_is_none_of_its_file(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "talk.wav", np.zeros(4_000), 16_000)
    with pytest.raises(BrokenPipeError), opened(tmp_path / "talk.wav"):
        raise BrokenPipeError
    with (
        pytest.raises(InvalidArgument, match=r"audio: a file that can be read, got .*none\.wav"),
        opened(tmp_path / "none.wav"),
    ):
        pass


def test_a_file_that_is_no_recording_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with (
        pytest.raises(InvalidArgument, match=r"audio: WAV, FLAC, MP3 or Ogg, got .*notes\.txt"),
        opened(tmp_path / "notes.txt"),
    ):
        pass
