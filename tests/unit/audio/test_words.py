"""How the pieces that Whisper aligns become words, and words a text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from services.audio.speech import Segment, Word, written
from services.audio.whisper_parts import Encoded, EncodedBatch, SpeechDecoder, most_tokens, words_of
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


def test_a_text_that_a_long_prompt_leaves_no_more_tokens_for_is_full() -> None:
    def generate(*_: Any, max_length: int, **__: Any) -> list[Any]:
        return [SimpleNamespace(sequences_ids=[[1] * (max_length - 227)], scores=[-0.1], no_speech_prob=0.0)]

    inner = SimpleNamespace(device="cpu", generate=generate)
    model: Any = SimpleNamespace(model=inner, max_length=448, get_prompt=lambda *_, **__: [0] * 227)
    tokenizer: Any = SimpleNamespace(
        language_code="en", eot=9, encode=lambda text: [1] * 300, decode=lambda tokens: "a"
    )
    batch = EncodedBatch([Encoded(np.zeros((80, 3_000), np.float32), 3_000, None)], None)
    (decoded,) = SpeechDecoder(model).decode(batch, tokenizer, before="names")
    assert len(decoded.tokens) == 448 - 227
    assert decoded.full
