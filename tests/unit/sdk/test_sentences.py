"""Sentences are found while the text is still being written."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow._sentences import SentenceSplitter, parts

SIGNS = st.sampled_from(["a", "é", "A", "1", "Dr", "no", "e.g", *".!?… \t\u00a0\n\"')]“(。！।؟」』-"])


def split(text: str, piece: int = 1) -> list[str]:
    splitter = SentenceSplitter()
    found = [s for at in range(0, len(text), piece) for s in splitter.feed(text[at : at + piece])]
    return found + splitter.flush()


@pytest.mark.parametrize(
    "sentences",
    [
        ["The capital of France is Paris."],
        ["It is 3.14 today.", "Or 2.72?", "Who knows!"],
        ["Dr. Smith met Mr. Jones vs. the U.S. team.", "They won."],
        ["J. R. R. Tolkien wrote it."],
        ["See Fig. 3 and no. 5 on p. 7.", "The answer is no.", "Really."],
        ['"Who could have lost this lantern?" asked the fox.', '"I did," said the owl.'],
        ["Ask e.g. Paris, i.e. the capital.", "Done."],
        ["Visit example.com or v1.2.3 now.", "Bye."],
        ["Well... maybe not.", "Then again…", "No."],
        ['He said "stop."', "Then he left."],
        ['He saw "the Dr."', "Then he left."],
        ["1. First do this.", "2. Then do that."],
        ["The answer is 12.", "Next."],
        ["今日は。", "元気？", "はい！"],
        ["मेरा नाम राम है।", "आप कैसे हैं?", "ठीक।"],
        ["كيف حالك؟", "أنا بخير.", "آپ کا نام کیا ہے؟", "ٹھیک ہے۔"],
    ],
)
def test_a_text_falls_into_its_sentences_however_it_arrives(sentences: list[str]) -> None:
    text = " ".join(sentences)
    for piece in (1, 2, 3, 7, len(text)):
        assert split(text, piece) == sentences


def test_a_line_ends_a_sentence_at_once() -> None:
    assert SentenceSplitter().feed("Shopping list\n- milk\n- ") == ["Shopping list", "- milk"]


def test_a_sign_that_closes_a_quotation_belongs_to_the_sentence_before_it() -> None:
    assert SentenceSplitter().feed("「元気？」はい。「") == ["「元気？」", "はい。"]


def test_a_sentence_is_given_as_soon_as_the_next_word_begins() -> None:
    splitter = SentenceSplitter()
    assert splitter.feed("It works.") == []
    assert splitter.feed(" ") == []
    assert splitter.feed("Now") == ["It works."]


def test_flushing_gives_what_is_left_once() -> None:
    splitter = SentenceSplitter()
    splitter.feed("No mark at the end ")
    assert splitter.flush() == ["No mark at the end"]
    assert splitter.flush() == []


@given(st.text(alphabet='aA1.!?… \n"(e.g', max_size=60), st.integers(1, 9))
def test_no_character_is_lost_and_pieces_do_not_matter(text: str, piece: int) -> None:
    whole = split(text, max(1, len(text)))
    assert split(text, piece) == whole
    assert re.sub(r"\s", "", "".join(whole)) == re.sub(r"\s", "", text)


@given(st.lists(SIGNS, max_size=60).map("".join), st.integers(1, 9))
def test_the_parts_of_a_text_have_the_sentences_of_the_whole(text: str, size: int) -> None:
    splitter, cut = SentenceSplitter(), parts(text, size)
    found = [sentence for part in cut for sentence in splitter.feed(part)]
    assert found + splitter.flush() == split(text, max(1, len(text)))
    assert "".join(cut) == text
    assert all(len(part) >= size for part in cut[:-1])
