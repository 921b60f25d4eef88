"""How the pieces that Whisper aligns become words, and words a text."""

from __future__ import annotations

import pytest

from services.audio.speech import Segment, Word, written
from services.audio.whisper_parts import most_tokens, words_of
from services.audio.wire import segment
from tests.unit.audio.voices import said


def aligned(*pieces: str) -> list[dict[str, object]]:
    return [
        {"word": piece, "start": at, "end": at + 1, "probability": 0.9, "tokens": [at]}
        for at, piece in enumerate(pieces)
    ]


@pytest.mark.parametrize(
    ("pieces", "spaced", "expected"),
    [
        ((" Ninety", "-nine", " cats."), True, "Ninety-nine cats."),
        (("今", "天", "天", "气", "很", "好", "。"), False, "今天天气很好。"),
        (("我", "用", " Py", "thon", " 写", "代", "码"), False, "我用 Python 写代码"),
        (("วัน", "นี้", " ", "อา", "กาศ", "ดี"), False, "วันนี้ อากาศดี"),
    ],
)
def test_words_are_written_as_the_model_wrote_them(pieces: tuple[str, ...], spaced: bool, expected: str) -> None:
    words = words_of(aligned(*pieces), spaced=spaced)
    assert written(words).strip() == expected
    assert all(word.text == word.text.strip() for word in words)
    assert segment(Segment(0, words, 0.0, 1.0)).text == expected


def test_texts_in_a_row_are_parted_as_their_words_are() -> None:
    assert written(said("It", "rains.")) + written(said("Really.")) == " It rains. Really."
    one, other = Word("你好。", 0, 1, joined=True), Word("世界。", 1, 2, joined=True)
    assert written([one]) + written([other]) == "你好。世界。"


@pytest.mark.parametrize(
    ("language", "seconds", "tokens"),
    [("ml", 4.8, 188), ("te", 5.6, 176), ("bn", 5.3, 155), ("hi", 3.9, 82), ("ta", 5.2, 85), ("de", 4.4, 23)],
)
def test_a_sentence_spoken_fast_has_no_more_tokens_than_its_language_may(language: str, seconds: float, tokens: int):
    assert tokens < most_tokens(round(seconds * 100), language)


def test_a_loop_of_the_decoder_ends_where_speech_would():
    assert most_tokens(500, "en") == 91
