"""Which language a stream is taken for."""

from __future__ import annotations

import pytest

from services.audio.language import StreamLanguage
from services.audio.speech import Transcript, Word

SAID = (Word("ja", 0, 1),)


def test_a_language_that_was_asked_for_stays() -> None:
    language = StreamLanguage("en")
    language.observe(Transcript(SAID, "de", 0.99), 10)
    assert (language.wanted, language.code) == ("en", "en")


@pytest.mark.parametrize(("certainty", "audio_s", "wanted"), [(0.9, 5, "de"), (0.9, 1, ""), (0.3, 5, "")])
def test_a_language_is_detected_until_it_is_sure_in_enough_speech(
    certainty: float, audio_s: float, wanted: str
) -> None:
    language = StreamLanguage("")
    language.observe(Transcript(SAID, "de", certainty), audio_s)
    assert (language.wanted, language.code) == (wanted, "de")


@pytest.mark.parametrize(("certainty", "audio_s", "settled"), [(0.9, 1, True), (0.3, 2.5, True), (0.6, 1, False)])
def test_words_are_shown_once_the_language_is_likely(certainty: float, audio_s: float, settled: bool) -> None:
    language = StreamLanguage("")
    language.observe(Transcript(SAID, "de", certainty), audio_s)
    assert language.settled is settled


def test_silence_has_no_language() -> None:
    language = StreamLanguage("")
    language.observe(Transcript((), "", 0.9), 10)
    assert (language.wanted, language.code) == ("", "")
