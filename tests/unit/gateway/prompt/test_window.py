from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.prompt import window
from tests.unit.gateway.prompt.conversations import conversation, said


def test_a_conversation_has_instructions_turns_and_a_question():
    parts = window.parts(conversation(2))
    assert [message.content for message in parts.head] == ["Be brief."]
    assert [[message.content[:2] for message in turn] for turn in parts.turns] == [["0?", "0."], ["1?", "1."]]
    assert [message.content for message in parts.question] == ["And now?"]


def test_tool_results_belong_to_the_question():
    asked = [said("user", "Time?"), said("assistant", "a call"), said("tool", "noon")]
    assert window.parts([*conversation(1)[:-1], *asked]).question == tuple(asked)


@given(st.lists(st.integers(1, 500), max_size=30), st.integers(0, 20), st.integers(1, 900))
def test_a_cut_takes_whole_turns_and_no_more_than_are_needed_for_its_steps(sizes: list[int], steps: int, step: int):
    turns = [(said("user", "x" * size),) for size in sizes]
    dropped = window.cut(turns, steps, step)
    assert sum(sizes[:dropped]) >= min(steps * step, sum(sizes))
    assert not dropped or sum(sizes[: dropped - 1]) < steps * step


@given(st.text(max_size=300), st.integers(0, 200))
def test_a_text_is_shortened_to_its_end_from_a_sentence_on(text: str, most: int):
    left = window.shortened(text, most)
    assert len(left.encode()) <= most or left == text == ""
    assert text.endswith(left)


def test_a_text_is_cut_where_sentences_begin():
    assert window.shortened("One is here. Two is there. Three.", 24) == "Two is there. Three."
    assert window.shortened("One is here. Two is there. Three.", 3) == ""


def test_a_text_of_exactly_the_limit_stays_whole():
    text = "One is here. Zwei ist hübsch."
    assert window.shortened(text, len(text.encode())) == text
    assert window.shortened(f"Before. {text}", len(text.encode())) == text
    assert window.shortened(f"Before. {text}", len(text.encode()) - 1) == "Zwei ist hübsch."


@given(st.lists(st.text(max_size=40), min_size=1, max_size=5))
def test_no_tokenizer_makes_more_tokens_than_there_are_bytes(contents: list[str]):
    messages = [said("user", content) for content in contents]
    assert window.most_tokens(messages) >= sum(len(content.encode()) for content in contents) + len(contents)


def test_an_estimate_counts_what_a_template_adds_to_each_message():
    many, one = [said("user", "Yes.")] * 100, [said("user", "Yes." * 100)]
    assert window.estimated_tokens(many) - window.estimated_tokens(one) == 99 * 5
