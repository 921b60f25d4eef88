from __future__ import annotations

import tracemalloc

import pytest

from services.runtime.complexity import Complexity, classify


@pytest.mark.parametrize(
    ("complexity", "questions"),
    [
        (Complexity.SIMPLE, ["What is the capital of France?", "Hello.", "Count from 1 to 5.", ""]),
        (Complexity.SIMPLE, ["Wie heißt die Hauptstadt von Peru?", "¿Qué hora es?", "日本的首都是哪里？"]),
        (Complexity.COMPLEX, ["Why is the sky blue?", "Compare Go with Rust.", "word " * 61, "Fix this: ```x = 1```"]),
        (Complexity.COMPLEX, ["Who is he? And she?", "谁？谁？", "من هو؟ ومن هي؟"]),
        (Complexity.COMPLEX, ["Explain quantum computing", "Erkläre mir, wie ein Wasserkraftwerk funktioniert."]),
        (Complexity.COMPLEX, ["Pourquoi la mer est-elle salée ?", "请解释量子计算。", "なぜ空は青いのですか？"]),
        (Complexity.COMPLEX, ["Напиши рассказ о лисе."]),
    ],
    ids=[
        "facts",
        "facts in other languages",
        "reasoning or long",
        "several",
        "explain",
        "explain elsewhere",
        "stories",
    ],
)
def test_a_fact_is_simple_and_reasoning_and_several_demands_are_complex(complexity: Complexity, questions: list[str]):
    assert [classify(question) for question in questions] == [complexity] * len(questions)


def test_of_a_long_question_only_the_first_words_are_split_off():
    question = "word " * 300_000
    tracemalloc.start()
    try:
        assert classify(question) is Complexity.COMPLEX
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(question)
