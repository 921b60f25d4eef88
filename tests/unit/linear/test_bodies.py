"""No step of what looks at a body for a provider takes more than a part of it: between two steps the event loop runs.

The work is counted: fields that are checked, values that are passed, and texts that are searched, in each step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission import provider_fields
from services.gateway.guard.checks import guard_checks
from services.gateway.guard.screen import ContentScanner, Late, Screen
from services.gateway.http.endpoints import providers
from services.gateway.settings.guard import GuardSettings
from services.runtime.deadline import Deadline
from services.runtime.security.private_data import Names

CHECKS = guard_checks(GuardSettings(personal="mask"), pb.GenerateRequest())


class Counted:
    """How often something was called since it was last read."""

    def __init__(self) -> None:
        self.total = self._read = 0

    def since(self) -> int:
        """The calls since the last time."""
        calls, self._read = self.total - self._read, self.total
        return calls


def counting(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Counted:
    """The calls of a function."""
    counted, made = Counted(), getattr(owner, name)

    def counts(*given: Any, **named: Any) -> Any:
        counted.total += 1
        return made(*given, **named)

    monkeypatch.setattr(owner, name, counts)
    return counted


def passing(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Counted:
    """The values that a generator has passed on."""
    counted, made = Counted(), getattr(owner, name)

    def counts(given: Any) -> Iterator[Any]:
        for each in made(given):
            counted.total += 1
            yield each

    monkeypatch.setattr(owner, name, counts)
    return counted


@pytest.mark.parametrize("objects", [9_999, 250])
def test_each_step_of_the_check_of_fields_checks_one_object(objects: int, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = counting(monkeypatch, provider_fields, "check")
    body = {f"l{field}": [{"a": 1}] * (objects // 3) for field in range(3)}
    for _ in provider_fields.check_body(body, [], "acme"):
        assert checked.since() <= 1
    assert checked.total == 3 * (objects // 3)


def test_each_step_of_the_check_of_fields_passes_a_part_of_the_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = passing(monkeypatch, provider_fields, "_elements")
    for _ in provider_fields.check_body({"input": [[1] * 9_999] * 20}, [], "acme"):
        assert passed.since() <= provider_fields.VALUES_A_STEP
    assert passed.total > 20 * 9_999


@pytest.mark.parametrize("text", ["", "ab"])
def test_each_step_of_the_guard_passes_a_part_of_the_texts(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    passed, searched = passing(monkeypatch, providers, "values_of"), counting(monkeypatch, Screen, "close")
    assert CHECKS
    scanner = ContentScanner(CHECKS, Names(), Deadline.never())
    for _ in providers._scan_fields({"input": [[text] * 9_999] * 20}, scanner, {}):
        assert passed.since() <= providers.VALUES_A_STEP
    assert passed.total > 20 * 9_999
    assert searched.total == bool(text), "equal texts are searched once"


@pytest.mark.parametrize("texts", [[""] * 9_999, [str(number) for number in range(9_999)]], ids=["empty", "short"])
def test_the_guard_stops_at_the_deadline(texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert CHECKS
    passed = passing(monkeypatch, providers, "values_of")
    with pytest.raises(Late):
        for _ in providers._scan_fields({"input": texts}, ContentScanner(CHECKS, Names(), Deadline.after(0)), {}):
            pass
    assert passed.total <= providers.VALUES_A_STEP
