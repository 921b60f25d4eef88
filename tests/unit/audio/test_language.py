"""Which language a stream is taken for."""

from __future__ import annotations

import pytest

from services.audio.listener import StreamLanguage
from services.audio.speech import Transcript, Word

GERMAN = (Word("ja", 0, 1),)


@pytest.mark.parametrize(
    ("asked", "certainty", "audio_s", "wanted", "code", "settled"),
    [
        ("en", 0.99, 10, "en", "en", True),
        ("", 0.9, 5, "de", "de", True),
        ("", 0.9, 1, "", "de", True),
        ("", 0.3, 5, "", "de", True),
        ("", 0.3, 2.5, "", "de", True),
        ("", 0.6, 1, "", "de", False),
    ],
    ids=["asked for", "sure", "of too little speech", "unsure", "likely by its length", "neither likely nor sure"],
)
def test_a_language_is_asked_for_or_detected_until_it_is_sure_in_enough_speech(
    asked: str, certainty: float, audio_s: float, wanted: str, code: str, settled: bool
) -> None:
    language = StreamLanguage(asked)
    language.observe(Transcript(GERMAN, "de", certainty), audio_s)
    assert (language.wanted, language.code, language.settled) == (wanted, code, settled)


def test_silence_has_no_language() -> None:
    language = StreamLanguage("")
    language.observe(Transcript((), "", 0.9), 10)
    assert (language.wanted, language.code) == ("", "")
