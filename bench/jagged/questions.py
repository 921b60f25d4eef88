"""Questions with their arrival times: made beforehand, and the same for every arm."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bench.asking import question, user
from bench.load import Arrival, poisson
from hedgerow.llm.v1 import llm_pb2

RECENT = 1_000  # questions that a repeat is drawn from, each as likely


@dataclass(frozen=True, slots=True)
class Question:
    """A question and when it is asked, in seconds after the start."""

    at_s: float
    text: str
    again: bool  # asked before


def ask_around(rate: float, seconds: float, repeat_share: float, seed: int) -> list[Question]:
    """`rate` questions a second for so long; `repeat_share` of them were asked before, word for word."""
    rng = random.Random(seed)
    recent: deque[str] = deque(maxlen=RECENT)
    questions: list[Question] = []
    for at_s in poisson(rate, seconds, rng):
        again = rng.random() < repeat_share and bool(recent)
        text = rng.choice(recent) if again else f"What does page {len(questions)} say, and what follows?"
        if not again:
            recent.append(text)
        questions.append(Question(at_s, text, again))
    return questions


def arrivals(questions: Sequence[Question], request: Callable[[str], bytes]) -> list[Arrival]:
    """The same questions as requests in the form that the arm's server takes."""
    return [Arrival(each.at_s, request(each.text), "again" if each.again else "new") for each in questions]


def to_llm(text: str) -> bytes:
    """Straight to the provider."""
    return llm_pb2.GenerateRequest(messages=user(text)).SerializeToString()


def to_gateway(budget_ms: int, *, bypass: bool) -> Callable[[str], bytes]:
    """To a gateway. Only the very same question is a hit: here wordings differ in their numbers alone."""
    return partial(question, bypass=bypass, budget_ms=budget_ms)
