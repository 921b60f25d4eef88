from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.prompt.compression import PHRASES, diet
from services.gateway.prompt.protected import pieces

PROTECTED = [
    "```\nx  =  1\n\n\n\nin order to\n```",
    "~~~\na   b\n~~~",
    "`a  b`",
    '"In order to  quote"',
    "“in  order to”",
    "«a  b»",
    "»a  b«",
    "「in order to」",
    "『in order to』",
    "'keep  this'",
    '{"a":  [1,  2], "in order to": "}"}',
    "[1,   [2,  3]]",
    "<data>in order to   keep</data>",
    "| a  | b   |",
    "> said   so",
    "    indented   code",
    "https://example.org/in-order-to??a==b",
]
PROSE = [
    "Please make sure to  answer in order to help.",
    "Answer in one short sentence only.",
    "Answer in one short sentence only.",
    "It is   important to note that you should always cite.",
    "Don't do it; it's fine.   ",
    "",
    "",
]


@pytest.mark.parametrize(
    ("text", "left", "rules"),
    [
        ("Be  brief.\n\n\n\nNow.  ", "Be brief.\n\nNow.", ("spaces",)),
        ("Do it in order to help.", "Do it to help.", ("phrases",)),
        ("In order to help, do it.", "To help, do it.", ("phrases",)),
        ("Please make sure to answer.", "Answer.", ("phrases",)),
        ("It is important to note that you should always cite.", "Always cite.", ("phrases",)),
        ("Answer in English only. Be kind. Answer in English only.", "Answer in English only. Be kind.", ("repeats",)),
        ("Answer in English only.\nanswer in english  only.\nBe kind.", "Answer in English only.\nBe kind.", None),
        ("Yes. Yes. Yes.", "Yes. Yes. Yes.", ()),
        *(
            (text, text, ())
            for text in (
                "Answer yes where x > 5. Answer yes where x < 5.",
                "Say what the दिल is? Say what the दाल is?",
                "Zeige die Maße von allen. Zeige die Masse von allen.",
            )
        ),
        ("Say what it is in ordering terms.", "Say what it is in ordering terms.", ()),
    ],
)
def test_filler_is_removed(text: str, left: str, rules: tuple[str, ...] | None):
    compressed = diet(text)
    assert compressed.text == left
    assert rules is None or compressed.rules == rules


EXAMPLES = "\n\n".join(
    f"Example {number}:\nInput: {asked}\nOutput: {answer}"
    for number, (asked, answer) in enumerate(
        [
            *(("good", "positive"), ("bad", "negative"), ("great", "positive"), ("Good", "positive")),
            *(("fine", "positive"), ("so so", "neutral"), ("lovely", "positive"), ("nice", "positive")),
        ]
    )
)


def test_compression_keeps_a_few_examples_and_one_for_each_answer():
    compressed = diet(f"Classify reviews.\n\n{EXAMPLES}\n\nNow classify.", most_examples=4)
    assert compressed.rules == ("examples",)
    assert [line for line in compressed.text.splitlines() if line.startswith("Input")] == [
        *("Input: good", "Input: bad", "Input: great", "Input: so so")
    ]
    assert compressed.text.startswith("Classify reviews.")
    assert compressed.text.endswith("Now classify.")
    assert diet(EXAMPLES, most_examples=0).text == EXAMPLES


def test_kept_examples_are_unchanged():
    kept = "Example 1:\nQuestion: what is it in order to help?\nAnswer: it is   this."
    other = "Example 3:\nQuestion: and what is that?\nAnswer: that is what it is."
    text = f"Answer in one short sentence.\n\n{kept}\n\n{kept.replace('1', '2')}\n\n{other}\n\nIn order to help."
    assert diet(text).text == f"Answer in one short sentence.\n\n{kept}\n\n{other}\n\nTo help."


def test_unanswered_questions_are_no_examples():
    text = "\n\n".join(f"Question: which is the {word} one of them?" for word in ("first", "second", "third") * 4)
    assert "examples" not in diet(text, most_examples=1).rules


@given(st.lists(st.sampled_from(PROTECTED + PROSE * 2), min_size=1, max_size=20))
def test_protected_text_stays_unchanged_and_in_order(lines: list[str]):
    left = diet("\n\n".join(lines)).text
    at = 0
    for line in lines:
        if line in PROTECTED:
            at = left.index(line.strip(), at) + len(line.strip())


@given(st.text(alphabet=" \n\t.!?\"'`“”«»{}[]<>/|abIn~:-", max_size=200))
def test_any_text_comes_in_pieces_that_make_it_up(text: str):
    assert "".join(piece for piece, _ in pieces(text)) == text


@given(st.lists(st.sampled_from([*PROTECTED, *PROSE, EXAMPLES, "{", '"', "<a>", "`", "'x"]), max_size=12))
def test_compression_makes_no_text_longer_or_empty_and_is_deterministic(lines: list[str]):
    text = "\n".join(lines)
    left = diet(text).text
    assert len(left) <= len(text)
    assert bool(left.strip()) == bool(text.strip())
    assert diet(text).text == left


def test_a_text_with_the_marks_of_compression_is_left_alone():
    for mark in "\ue000\ue001":
        assert diet(f"In  order to {mark}0{mark} help.").text == f"In  order to {mark}0{mark} help."


def test_each_phrase_has_a_shorter_replacement_that_is_no_phrase():
    for wordy, short in PHRASES.items():
        assert len(short) < len(wordy)
        assert wordy == wordy.lower().strip()
        assert short not in PHRASES
