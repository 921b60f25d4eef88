"""System prompts as applications write them: twelve, grown over time, each with what a diet looks for."""

from __future__ import annotations

_RULES = (
    "You are a small demo assistant. Answer briefly.",
    "Please make sure that you answer in one short sentence. It is important that you answer in one short sentence.",
    "Please note that you should always be polite, and you should never invent anything that you do not know.",
    "In the event that you do not know the answer, say so, due to the fact that a wrong answer is worse than none.",
    "In order to be helpful, you must always read the question to the end prior to your answer.",
    "It is important to note that each and every answer has to be in English.",
    "Your task is to answer questions. Your task is to answer questions about the world with regard to facts.",
    "Keep in mind that users are in a hurry. Keep in mind that users read on small screens.",
    "Do not repeat the question.   Do not repeat the question in other words.",
    "I would like you to use plain words for the purpose of being understood by a large number of people.",
)
_EXAMPLES = "\n\n".join(
    f"Example {number}:\nQuestion: {asked}\nAnswer: {answer}"
    for number, (asked, answer) in enumerate(
        (
            ("What is the capital of Peru?", "The capital of Peru is Lima."),
            ("What is 2 plus 2?", "2 plus 2 is 4."),
            ("What is the capital of Peru?", "The capital of Peru is Lima."),
            ("What is the opposite of hot?", "The opposite of hot is cold."),
            ("What is 2 plus 2?", "2 plus 2 is 4."),
            ("What is 3 plus 3?", "3 plus 3 is 6."),
            ("What is the opposite of tall?", "The opposite of tall is short."),
        ),
        1,
    )
)


def bloated() -> tuple[str, ...]:
    """The twelve: other rules in other orders, some said again at the end, every third with examples."""
    made = []
    for number in range(12):
        rules = [_RULES[0], *(_RULES[1 + (number + step) % (len(_RULES) - 1)] for step in range(6))]
        again = rules[1:3] if number % 2 else rules[4:5]
        parts = ["  ".join(rules), *([_EXAMPLES] if number % 3 == 0 else []), *again]
        made.append("\n\n\n".join(parts))
    return tuple(made)
