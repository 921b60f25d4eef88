"""The demo's checks of each answer."""

from __future__ import annotations

from signal import SIGCONT, SIGSTOP
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hedgerow import Decision, Label
from hedgerow_cli import demo
from hedgerow_cli.demo_steps import (
    STEPS,
    Check,
    DemoStep,
    a_city,
    decided,
    ends,
    says_something,
    seen,
    transcript_contains,
    verdict,
)
from hedgerow_cli.terminal import PlainConsole
from tests.unit.cli.answers import an_answer

CITY = '{"name": "Lyon", "country": "France", "population": 522000}'
CAT = ((Label("Egyptian cat", 0.4, 285),),)
WON = (Decision("hedge", "won", "b:1", "", 0.0),)


@pytest.mark.parametrize(
    ("check", "answer", "shortfall"),
    [
        (verdict("miss"), {}, ""),
        (verdict("exact"), {}, "cache exact, got miss"),
        (ends("stop", "length"), {}, ""),
        (ends("budget"), {}, "end ('budget',), got stop"),
        (says_something, {}, ""),
        (says_something, {"text": " "}, "an answer, got an empty one"),
        (a_city, {"text": CITY}, ""),
        (a_city, {"text": '{"name": "Lyon"}'}, 'the schema\'s fields, got \'{"name": "Lyon"}\''),
        (seen("cat"), {"sights": CAT}, ""),
        (seen("dog"), {"sights": CAT}, "a label with one of ('dog',), got ['Egyptian cat']"),
        (transcript_contains("why is the sky blue"), {"transcript": "Why is the sky blue?"}, ""),
        (
            transcript_contains("why is it blue"),
            {"transcript": "Why?"},
            "a transcript with 'why is it blue', got 'Why?'",
        ),
        (decided("hedge", "won"), {"decisions": WON}, ""),
        (decided("hedge", "won"), {}, "the decision hedge won, got []"),
    ],
)
def test_a_check_says_what_it_expected_and_what_it_got(check: Check, answer: dict[str, Any], shortfall: str) -> None:
    assert check(an_answer(**answer)) == shortfall
    assert a_city(an_answer(text="Lyon")).startswith("JSON, got 'Lyon'")


def test_a_step_names_itself_and_its_first_check_that_failed() -> None:
    step = DemoStep("A question", checks=(says_something, verdict("exact"), ends("budget")))
    assert step.shortfall(an_answer()) == "A question: expected cache exact, got miss"
    assert DemoStep("A question", checks=(says_something,)).shortfall(an_answer()) == ""


def test_every_step_of_the_demo_checks_something() -> None:
    assert all(step.checks for step in STEPS)


async def test_the_hedged_step_pauses_the_model_of_its_tier_whichever_model_is_faster() -> None:
    done: list[tuple[str, Any]] = []

    def service(name: str) -> Any:
        process = SimpleNamespace(signal=lambda number: done.append((name, number)))
        return SimpleNamespace(spec=SimpleNamespace(name=name), process=process)

    async def ask(question: str, **options: Any) -> Any:
        done.append(("asked", options["tier"]))
        return an_answer(decisions=(Decision("hedge", "started", "b:1", "", 0.0),))

    mesh: Any = SimpleNamespace(services=[service("llm-fast"), service("llm-quality")])
    (step,) = (step for step in STEPS if step.paused)
    assert await demo._ask(cast(Any, SimpleNamespace(ask=ask)), mesh, step, PlainConsole(quiet=True)) == ""
    assert done == [("llm-quality", SIGSTOP), ("asked", "quality"), ("llm-quality", SIGCONT)]
