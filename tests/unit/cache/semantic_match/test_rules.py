"""Which near questions may share an answer."""

from __future__ import annotations

import pytest

from services.cache.semantic_match import rules


def against(asked: str, stored: str) -> str:
    """The first rule that refuses the answer of one for the other."""
    return rules.difference(asked, stored, "acme")


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("What is the capital of France?", "Tell me the capital of France."),
        ("What is France's capital?", "What is the capital of France?"),
        ("what is the capital of france?", "What is the Capital of France?"),
        ("What is seven plus 5?", "What's 7 plus five?"),
        ("How do I stay motivated?", "What are the best ways to stay motivated?"),
        ("Can you tell me the opposite of hot?", "What is the opposite of hot?"),
        ("Does a guy like me or not?", "Does a guy like me?"),
        ("Why don’t cats swim?", "Why don't cats swim?"),
        ("???", "??"),
        ("Is my phone 5s waterproof?", "is my phone 5S waterproof"),
        ("What is the 21st amendment?", "What's the 21st amendment?"),
        ("What time is 5 p.m. in GMT?", "What time is 5 pm in GMT?"),
        ("What does NASA do in the US?", "what does nasa do in the us"),
        ("What does 'lol' mean?", "What does lol mean?"),
        ("Is it forbidden to park here?", "Is it prohibited to park here?"),
    ],
)
def test_the_same_question_in_other_words_passes(asked: str, stored: str) -> None:
    assert against(asked, stored) == against(stored, asked) == ""


@pytest.mark.parametrize(
    ("asked", "stored", "reason"),
    [
        ("What is 7 plus 5?", "What is 7 plus 6?", "numbers differ"),
        ("What is 7 minus 5?", "What is 5 minus 7?", "numbers differ"),
        ("Name the top three rivers.", "Name the top five rivers.", "numbers differ"),
        ("What is the capital of France?", "What is the capital of Spain?", "names differ"),
        ("Tell me about Spain's capital.", "Tell me about the capital of France.", "names differ"),
        ("Can I take it with food?", "Can I take it without food?", "negation differs"),
        ("Is it open?", "Isn't it open?", "negation differs"),
        ("turn dark mode on", "turn dark mode off", "opposites differ"),
        ("Is nuru massage legal?", "Are nuru massages illegal?", "opposites differ"),
        ("Where can I sell used books?", "Where can I buy used books?", "opposites differ"),
        ("Where was the wheel invented?", "When was the wheel invented?", "what is asked for differs"),
        ("How many cats are there?", "How old are cats there?", "what is asked for differs"),
        ("What is 7 plus 5?", "What is 7 minus 5?", "opposites differ"),
        ("Are cats afraid of tigers?", "Are tigers afraid of cats?", "word order differs"),
        ("convert 5 km to miles", "convert 5 miles to km", "word order differs"),
        ("How do I learn C++?", "How do I learn C#?", "symbols differ"),
        ("What does 🍎 mean?", "What does 🍊 mean?", "symbols differ"),
        ("🍎🍎", "🍊", "symbols differ"),
        ("东京的天气怎么样", "北京的天气怎么样", "words outside the Latin script differ"),
        ("How long is 5' in cm?", 'How long is 5" in cm?', "symbols differ"),
        ("What is the derivative of f'(x)?", "What is the derivative of f(x)?", "symbols differ"),
        ("What is 10^3?", "What is 10/3?", "symbols differ"),
        ("What is 10!?", "What is 10?", "symbols differ"),
        ("What is ½ of a cup in ml?", "What is ¼ of a cup in ml?", "symbols differ"),
        ("What is CO in chemistry?", "What is Co in chemistry?", "capitals differ"),
        ("How many bits has 1 Mb?", "How many bits has 1 MB?", "capitals differ"),
        ("What time is 5 am in GMT?", "What time is 5 pm in GMT?", "opposites differ"),
        ("What time is 5 a.m. in GMT?", "What time is 5 p.m. in GMT?", "opposites differ"),
        ("Can I take it once a day?", "Can I take it twice a day?", "opposites differ"),
        ("Is it prohibited to park here?", "Is it allowed to park here?", "opposites differ"),
        ("What is the ideal temperature?", "What is the minimum temperature?", "opposites differ"),
        ("Which is the seventh planet?", "Which is the eighth planet?", "numbers differ"),
        # Vowels and tones that are marks: heart and lentils; `of` by gender; he wrote and books; forest and aunt.
        ("What does दिल mean?", "What does दाल mean?", "words outside the Latin script differ"),
        ("Read की aloud.", "Read का aloud.", "words outside the Latin script differ"),
        ("What does كَتَبَ mean?", "What does كُتُب mean?", "words outside the Latin script differ"),
        ("What does ป่า mean?", "What does ป้า mean?", "words outside the Latin script differ"),
        ("How do I turn on dark mode on my phone?", "How do I turn off dark mode on my phone?", "opposites differ"),
        ("Should I eat before the test?", "Should I eat during the test?", "opposites differ"),
        ("Is it open on monday?", "Is it open on tuesday?", "opposites differ"),
        ("What changed this year?", "What changed last year?", "opposites differ"),
        ("What should I give him?", "What should I give her?", "opposites differ"),
        ("Is 500 mg a day too much?", "Is 500 g a day too much?", "opposites differ"),
        ("Is 40 degrees celsius too hot?", "Is 40 degrees fahrenheit too hot?", "opposites differ"),
        ("Is 20 cents a fair price?", "Is 20 dollars a fair price?", "opposites differ"),
        ("Can I use honey with sugar?", "Can I use honey instead of sugar?", "opposites differ"),
        ("Ist Baden vor dem Essen gesund?", "Ist Baden nach dem Essen gesund?", "opposites differ"),
        ("What does `a and b` return?", "What does `a or b` return?", "opposites differ"),
        ("Is it safe to stay?", "Is it unsafe to stay?", "opposites differ"),
        ("What is new in 5.0a?", "What is new in 5.0b?", "codes differ"),
        ("Who opened qzxv-prod-a?", "Who opened qzxv-prod-b?", "codes differ"),
        ("Is fooBarBaz safe?", "Is fooBazBar safe?", "codes differ"),
        ("Why did xK9dQw fail?", "Why did xk9DqW fail?", "codes differ"),
        ("What does 7 // 2 give?", "What does 7 / 2 give?", "symbols differ"),
        ("What does rows[1:] give?", "What does rows[:1] give?", "symbols differ"),
        ("Is prednisone addictive?", "Is prednisolone addictive?", "letters within a word differ"),
        ("Fix:\nif a:\n    b\n    c", "Fix:\nif a:\n    b\nc", "layout differs"),
    ],
)
def test_near_questions_with_other_facts_are_refused_and_the_reason_is_given(
    asked: str, stored: str, reason: str
) -> None:
    assert against(asked, stored) == against(stored, asked) == reason


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("Is fooBarBaz safe?", "Is fooBarBaz really safe?"),  # the same on both sides
        ("Is fooBarBaz safe?", "Is foobarbaz safe?"),  # as people write it in a hurry
        ("Is foobarbaz safe?", "Is fooBarBaz safe?"),
        ("Who opened the gate qzxv-prod-a?", "Who opened the gate?"),  # a code that stands in no other's place
        ("Who opened the gate?", "Who opened the gate qzxv-prod-a?"),
    ],
)
def test_a_code_that_no_other_code_stands_for_is_no_difference(asked: str, stored: str):
    assert rules.difference(asked, stored, "acme") == ""
