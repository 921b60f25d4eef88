from __future__ import annotations

import pytest

from services.runtime.complexity import Complexity, classify


@pytest.mark.parametrize("question", ["What is the capital of France?", "Hello.", "Count from 1 to 5."])
def test_looking_something_up_is_simple(question: str):
    assert classify(question) is Complexity.SIMPLE


@pytest.mark.parametrize(
    "question",
    ["Why is the sky blue?", "Compare Go with Rust.", "Who is he? And she?", "word " * 61, "Fix this: ```x = 1```"],
)
def test_reasoning_long_text_and_several_demands_are_complex(question: str):
    assert classify(question) is Complexity.COMPLEX


@pytest.mark.parametrize(
    "question",
    [
        "Explain quantum computing",
        "Erkläre mir, wie ein Wasserkraftwerk funktioniert.",
        "Pourquoi la mer est-elle salée ?",
        "请解释量子计算。",
        "なぜ空は青いのですか？",
        "Напиши рассказ о лисе.",
    ],
)
def test_what_is_to_be_explained_is_complex_in_any_language_it_was_trained_on(question: str):
    assert classify(question) is Complexity.COMPLEX


@pytest.mark.parametrize("question", ["Wie heißt die Hauptstadt von Peru?", "¿Qué hora es?", "日本的首都是哪里？", ""])
def test_looking_something_up_is_simple_in_other_languages_too(question: str):
    assert classify(question) is Complexity.SIMPLE


def test_a_question_in_two_question_marks_of_full_width_is_several():
    assert classify("谁？谁？") is Complexity.COMPLEX
