"""Callbacks of `ask` while an answer arrives."""

from __future__ import annotations

from hedgerow import Event, Patch, TextDelta
from hedgerow._incoming import Callbacks


def replayed(*events: Event) -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []
    callbacks = Callbacks(
        lambda text: seen.append(("token", text)),
        lambda text: seen.append(("sentence", text)),
        None,
        lambda text: seen.append(("replaced", text)),
    )
    for event in events:
        list(callbacks.notify(event))
    return seen


def test_a_replacement_text_is_marked_and_its_sentences_are_its_own() -> None:
    patch = Patch("llm", "It is ", replaces=True)
    assert replayed(TextDelta("I don't ", 1), patch, TextDelta("Paris. And", 1)) == [
        ("token", "I don't "),
        ("replaced", "It is "),
        ("token", "Paris. And"),
        ("sentence", "It is Paris."),
    ]


def test_the_patch_of_a_late_stage_is_no_text_of_the_answer() -> None:
    assert replayed(Patch("tool:news", "A fox. Two.")) == []
