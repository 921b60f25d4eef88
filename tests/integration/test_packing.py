"""How a recording's speech is packed into windows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from services.audio.packing import AROUND, PackedWindow, Stretch, speech_for, windows
from services.audio.speech import RATE, Audio
from tests.unit.audio.voices import question, silence


def packed(recording: Audio, longest_s: float = 30.0) -> list[PackedWindow]:
    return [window for window in windows(recording, longest_s, speech_for(longest_s)) if window]


def stretches(found: list[PackedWindow]) -> list[Stretch]:
    return [stretch for window in found for stretch in window.stretches]


def test_long_silence_is_left_out_but_for_a_little_around_speech() -> None:
    recording = np.concatenate((silence(2), question(), silence(5), question(), silence(40)))
    (window,) = packed(recording)
    first, second = window.stretches
    assert 2 * RATE - AROUND <= first.start < 2.5 * RATE
    assert len(window.audio(recording)) < 2 * len(question()) + 4 * AROUND
    assert second.start - first.stop > 4 * RATE


def test_short_silence_stays() -> None:
    spoken = question()[RATE // 2 : -RATE // 4]
    found = stretches(packed(np.concatenate((spoken, silence(0.3), spoken))))
    assert all(other.start - one.stop <= 1 for one, other in pairwise(found))


def test_windows_are_filled_in_order_and_none_is_longer_than_it_may_be() -> None:
    found = packed(np.concatenate((question(), silence(0.6)) * 10), longest_s=10)
    lengths = [sum(each.stop - each.start for each in window.stretches) / RATE for window in found]
    assert max(lengths) <= 10
    assert min(lengths[:-1]) > 6
    starts = [stretch.start for stretch in stretches(found)]
    assert starts == sorted(starts)


def test_speech_without_a_pause_is_cut_before_it_is_too_long_and_nothing_is_lost() -> None:
    spoken = question()[RATE // 4 : -RATE // 4]
    found = stretches(packed(np.concatenate([spoken] * 12), longest_s=6))
    assert len(found) > 2
    assert all(each.stop - each.start <= 6 * RATE for each in found)
    assert sum(other.start - one.stop for one, other in pairwise(found)) < 0.5 * RATE


def test_each_half_minute_of_silence_is_a_step_of_its_own() -> None:
    assert list(windows(silence(65), 30, speech_for(30))) == [None] * 3


@pytest.mark.parametrize(
    ("heard", "recorded"),
    [((0.5, 1.0), (10.5, 11.0)), ((2.5, 3.0), (20.5, 21.0)), ((1.9, 2.4), (20.0, 20.4)), ((1.5, 2.2), (11.5, 12.0))],
)
def test_times_are_those_of_the_recording_and_no_word_spans_what_was_left_out(
    heard: tuple[float, float], recorded: tuple[float, float]
) -> None:
    window = PackedWindow((Stretch(10 * RATE, 12 * RATE), Stretch(20 * RATE, 22 * RATE)))
    assert window.recorded_s(*heard) == pytest.approx(recorded)
