"""The requests of `hedgerow demo`, and checks of each answer: of its form, its time and its report, never of a model's
exact words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hedgerow import Answer, Options

Check = Callable[[Answer], str]  # what is wrong with the answer; empty where nothing is

CAPITAL = "What is the capital of Japan?"  # one that both models answer in one short sentence, ten times of ten
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 24},
        "country": {"type": "string", "maxLength": 24},
        "population": {"type": "integer", "minimum": 1000, "maximum": 40_000_000},
    },
    "required": ["name", "country", "population"],
    "additionalProperties": False,
}


def verdict(wanted: str) -> Check:
    """The cache's verdict is this one."""
    return lambda answer: "" if answer.cache.verdict == wanted else f"cache {wanted}, got {answer.cache.verdict}"


def ends(*reasons: str) -> Check:
    """The answer ends for one of these reasons."""
    return lambda answer: "" if answer.finish_reason in reasons else f"end {reasons}, got {answer.finish_reason}"


def says_something(answer: Answer) -> str:
    """It has a text."""
    return "" if answer.text.strip() else "an answer, got an empty one"


def a_city(answer: Answer) -> str:
    """It is JSON with the fields of `CITY`."""
    try:
        found = json.loads(answer.text)
    except ValueError as error:
        return f"JSON, got {answer.text!r}: {error}"
    return "" if found.keys() == CITY["properties"].keys() else f"the schema's fields, got {answer.text!r}"


def seen(*names: str) -> Check:
    """The first picture was labelled with one of these words."""

    def check(answer: Answer) -> str:
        labels = [label.name for labels in answer.sights for label in labels]
        found = any(name in label.lower() for name in names for label in labels)
        return "" if found else f"a label with one of {names}, got {labels}"

    return check


def transcript_contains(words: str) -> Check:
    """The transcript has these words; punctuation and case are the model's own."""

    def check(answer: Answer) -> str:
        said = " ".join(re.findall(r"[a-z']+", answer.transcript.lower()))
        return "" if said == words else f"a transcript with {words!r}, got {answer.transcript!r}"

    return check


def decided(policy: str, action: str) -> Check:
    """A policy's decision is in the report."""

    def check(answer: Answer) -> str:
        made = [(each.policy, each.action) for each in answer.decisions]
        return "" if (policy, action) in made else f"the decision {policy} {action}, got {made}"

    return check


@dataclass(frozen=True)
class DemoStep:
    """One question. `images` and `audio` are files of the samples' folder."""

    title: str
    question: str = ""
    options: Options = field(default_factory=Options)
    images: tuple[str, ...] = ()
    audio: str = ""
    checks: tuple[Check, ...] = ()
    after_stored: str = ""  # a question whose answer the cache must hold before
    paused: str = ""  # a service that is stopped (SIGSTOP) while this is asked

    def shortfall(self, answer: Answer) -> str:
        """The first check that failed; empty where all passed."""
        fell_short = next(filter(None, (check(answer) for check in self.checks)), "")
        return f"{self.title}: expected {fell_short}" if fell_short else ""


STEPS = (
    DemoStep("A question, streamed", CAPITAL, checks=(verdict("miss"), ends("stop"), says_something)),
    DemoStep(
        "The same again: an exact hit, no model is asked", CAPITAL, checks=(verdict("exact"),), after_stored=CAPITAL
    ),
    DemoStep(
        "In other words: a semantic hit",
        "Tell me the capital of Japan.",
        {"min_similarity": 0.8},
        checks=(verdict("semantic"),),
        after_stored=CAPITAL,
    ),
    DemoStep(
        "JSON by a schema",
        "Describe a large city of your choice.",
        {"json_schema": CITY, "tier": "quality"},
        checks=(a_city,),
    ),
    DemoStep(
        "A photograph: its labels go to the language model with the question",
        "What animal is in this photograph?",
        images=("photographs/cat.jpg",),
        checks=(seen("cat", "tabby"), says_something),
    ),
    DemoStep(
        "A spoken question",
        audio="voices/why-is-the-sky-blue.flac",
        options={"max_tokens": 60},
        checks=(transcript_contains("why is the sky blue"), says_something),
    ),
    DemoStep(
        "A long answer with a budget of 300 ms: the text so far, in time, and no error",
        "Write a long story about a fox that learns to read.",
        {"budget_ms": 300, "tier": "quality"},
        checks=(ends("budget"),),  # a busy machine may end it some milliseconds late; the report says when
    ),
    DemoStep(
        "A hedge: the preferred model is paused (SIGSTOP), another answers",
        "What is the largest ocean?",
        # The router prefers the one model of this tier, whichever model is faster at the moment.
        {"cache": "bypass", "max_tokens": 40, "tier": "quality"},
        # Not `won`: on a slow CPU the preferred model is given up before another has a text.
        checks=(decided("hedge", "started"), says_something),
        paused="llm-quality",
    ),
)
