"""How the words of a recording become segments."""

from __future__ import annotations

import pytest

from services.audio.sentences import LONGEST_S, PAUSE_S, TranscriptSentences
from services.audio.speech import Word
from tests.unit.audio.voices import said


def segments(words: list[Word]) -> list[str]:
    sentences = TranscriptSentences("en")
    found = [*sentences.push(words), *sentences.end()]
    assert [each.index for each in found] == list(range(len(found)))
    assert all(each.language == "en" for each in found)
    return [" ".join(word.text for word in each.words) for each in found]


@pytest.mark.parametrize(
    ("spoken", "expected"),
    [
        ("It rains. Take this!", ["It rains.", "Take this!"]),
        ("Mr. Fox met Dr. Owl. He left.", ["Mr. Fox met Dr. Owl.", "He left."]),
        ("at 9 p.m. in the dark", ["at 9 p.m. in the dark"]),
        ('She said "No." Then she left', ['She said "No."', "Then she left"]),
        ("no end", ["no end"]),
        ("यह किताब है। वह कलम है।", ["यह किताब है।", "वह कलम है।"]),
        ("كيف حالك؟ أنا بخير.", ["كيف حالك؟", "أنا بخير."]),
        ("「はい。」 そうです。", ["「はい。」", "そうです。"]),
    ],
)
def test_a_segment_is_a_sentence(spoken: str, expected: list[str]) -> None:
    assert segments(said(*spoken.split())) == expected


def test_a_pause_ends_a_segment() -> None:
    assert segments([*said("well,"), *said("then", from_s=0.4 + PAUSE_S)]) == ["well,", "then"]
    assert segments([*said("well,"), *said("then", from_s=0.3 + PAUSE_S)]) == ["well, then"]


def test_a_segment_without_an_end_is_cut() -> None:
    words = said(*["on"] * 200)
    found = TranscriptSentences()
    assert all(each.end_s - each.start_s <= LONGEST_S for each in [*found.push(words), *found.end()])


def test_a_sentence_that_ends_with_a_piece_of_work_is_a_segment_at_once_and_one_that_goes_on_is_not() -> None:
    found = TranscriptSentences()
    assert [each.end_s for each in found.push(said("It", "rains."))] == [0.8]
    assert not list(found.push(said("Take", from_s=0.8)))
    assert [each.start_s for each in found.push(said("this!", from_s=1.2))] == [0.8]


def test_no_words_are_no_segment() -> None:
    assert segments([]) == []
