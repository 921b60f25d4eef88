"""The names that are suggested for mistyped ones."""

from __future__ import annotations

import pytest

from services.gateway.config import GatewaySettings
from services.runtime.process.suggestions import nearest, nearest_at, offered


@pytest.mark.parametrize(
    ("given", "expected"), [("warmup", "warm_up"), ("budget", "default_budget_ms"), ("colour", ""), ("", "")]
)
def test_a_name_is_suggested_that_is_near_or_has_the_word(given: str, expected: str) -> None:
    assert nearest(given, ["judge", "warm_up", "default_budget_ms", "max_budget_ms"]) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("hedge", "mod"), "mode"),
        (("guards",), "guard"),
        (("budget",), "default_budget_ms"),
        (("tenants", "acme", "hits", "other"), "others"),
        (("tenants", "acme", "tool"), "tools"),
    ],
)
def test_a_suggestion_is_a_name_of_the_same_group(path: tuple[str, ...], expected: str) -> None:
    assert nearest_at(GatewaySettings, path) == expected


def test_a_fixed_setting_is_not_suggested() -> None:
    assert "max_waiting_calls" in GatewaySettings.model_fields
    assert "max_waiting_calls" not in offered(GatewaySettings)
