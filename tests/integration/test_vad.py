"""Voice activity detection."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.speech import RECORDINGS
from services.audio.endpointer import Endpointer
from services.audio.speech import RATE, Audio
from services.audio.vad import FRAME, PauseDetector, Probabilities, SpeechTurn
from tests.unit.audio.voices import question, silence

PAUSE_S = 0.5


def turns(probabilities: list[float], pause_s: float = PAUSE_S) -> list[SpeechTurn]:
    pauses = PauseDetector(pause_s)
    return [turn for probability in probabilities if (turn := pauses.push(probability))]


def test_speech_begins_with_its_first_frame_once_it_is_sure() -> None:
    assert turns([0.1, 0.9, 0.9, 0.9]) == [SpeechTurn(True, FRAME)]


def test_a_click_is_not_speech() -> None:
    assert turns([0.9, 0.9, 0.1, 0.9, 0.9, 0.1]) == []


def test_speech_ends_where_the_pause_began() -> None:
    assert turns([0.9] * 10 + [0.1] * 17) == [SpeechTurn(True, 0), SpeechTurn(False, 10 * FRAME)]


def test_a_short_silence_ends_nothing() -> None:
    assert turns([0.9] * 10 + [0.1] * 15 + [0.9] * 3) == [SpeechTurn(True, 0)]


def test_between_the_thresholds_the_state_of_speech_stays() -> None:
    assert turns([0.4] * 50) == []
    assert turns([0.9] * 3 + [0.4] * 50) == [SpeechTurn(True, 0)]


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), max_size=300))
def test_beginnings_and_ends_take_turns(probabilities: list[float]) -> None:
    found = turns(probabilities)
    assert [turn.speaking for turn in found] == [at % 2 == 0 for at in range(len(found))]
    assert [turn.at for turn in found] == sorted(turn.at for turn in found)


def test_silence_and_hum_are_not_speech() -> None:
    assert Probabilities().feed(silence(3)).max() < 0.5
    assert Probabilities().feed(question()).max() > 0.9


@pytest.mark.parametrize("muted_s", [2, 20, 60, 120])
def test_speech_is_found_after_any_length_of_silence(muted_s: int) -> None:
    human, rate = soundfile.read(RECORDINGS / "jfk.flac", dtype="float32")
    assert rate == RATE
    muted = np.zeros(muted_s * RATE, np.float32)
    found = Probabilities().feed(np.concatenate((muted, human)))
    assert (found >= 0.5).sum() >= (Probabilities().feed(human) >= 0.5).sum()


@pytest.mark.parametrize("size", [100, FRAME, 1_600, 7_777])
def test_the_size_of_packets_does_not_matter(size: int) -> None:
    audio, stream = np.concatenate((silence(5), question())), Probabilities()
    pieces = np.concatenate([stream.feed(audio[start : start + size]) for start in range(0, len(audio), size)])
    assert np.allclose(pieces, Probabilities().feed(audio), atol=1e-4)


def test_the_ear_forgets_what_is_not_needed() -> None:
    endpointer = Endpointer(PAUSE_S)
    for _ in range(20):
        endpointer.feed(silence(1))
        endpointer.forget(endpointer.now)
    assert endpointer.kept_s < 1.0
    (started,) = endpointer.feed(np.concatenate((silence(0.5), question())))
    assert 20.3 < started.at_s < 21.0


def test_the_ear_closes_what_is_open_when_the_audio_ends() -> None:
    endpointer, audio = Endpointer(PAUSE_S), question()
    endpointer.feed(audio)
    endpointer.end()
    assert [utterance.closed for utterance in endpointer.utterances] == [True]
    assert endpointer.spoken > 0.5 * len(audio)
    assert same(endpointer.audio(0, 1_000), audio[:1_000])


def same(one: Audio, other: Audio) -> bool:
    return bool(np.array_equal(one, other))
