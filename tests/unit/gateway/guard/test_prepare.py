"""The rules of a guard are compiled before the first request that it checks."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import regex

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Identity
from services.gateway.guard import injection
from services.gateway.guard.checks import guard_checks
from services.gateway.guard.screen import Screen
from services.gateway.settings.guard import GuardSettings
from services.gateway.settings.tenants import TenantSettings
from services.runtime.security import incremental_search
from tests.keys import digest, keyed
from tests.unit.gateway.admission.tenants_file import followed, write

GUARD = {
    "injection": "note",
    **dict.fromkeys(("secrets", "personal", "answer_secrets", "answer_personal"), "mask"),
    "denied_phrases": ["a phrase of test_prepare"],
    "denied_patterns": ["a pattern of test_prepare [0-9]{1,9}"],
}
ASKED = pb.GenerateRequest(guard=pb.GuardPolicy(secrets=pb.GUARD_ACTION_MASK, answer_personal=pb.GUARD_ACTION_MASK))


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The expressions that are compiled from now on, in a process that has compiled no rule of a guard yet."""
    for name in ("credentials", "personal_data"):
        monkeypatch.delitem(sys.modules, f"services.runtime.security.{name}", raising=False)
    incremental_search.reach.cache_clear()
    injection.model.cache_clear()
    compiled: list[str] = []

    def noted(parse: Callable[..., Any]) -> Callable[..., Any]:
        def parsed(pattern: str, *more: Any) -> Any:
            compiled.append(pattern)
            return parse(pattern, *more)

        return parsed

    monkeypatch.setattr(re._parser, "parse", noted(re._parser.parse))  # type: ignore[attr-defined]
    monkeypatch.setattr(regex, "compile", noted(regex.compile))
    return compiled


def look_through(guard: GuardSettings, request: pb.GenerateRequest) -> None:
    checks = guard_checks(guard, request)
    assert checks is not None
    for rules in (checks.masks, checks.answers):
        screen = Screen(rules, checks.denied)
        screen.feed("a" * 20_000)
        screen.close()
    injection.probability("What is a hedgerow?")


def check(identity: Identity, compiles: list[str], requests: Sequence[pb.GenerateRequest]) -> None:
    guard = identity.tenant("Bearer sesame").guard
    assert compiles
    compiles.clear()
    for request in requests:
        look_through(guard, request)
    assert compiles == []


def test_the_first_request_that_is_guarded_compiles_nothing(compiles: list[str]) -> None:
    tenants = {"acme": TenantSettings(keys=[digest("sesame")], guard=GuardSettings.model_validate(GUARD))}
    check(Identity(tenants, None), compiles, [pb.GenerateRequest()])


def test_the_first_request_with_a_guard_of_its_own_compiles_nothing(compiles: list[str]) -> None:
    check(Identity({"acme": keyed("sesame")}, None), compiles, [ASKED])


async def test_the_first_request_after_a_change_of_the_tenants_file_compiles_nothing(
    tmp_path: Path, compiles: list[str]
) -> None:
    file = tmp_path / "tenants.yaml"
    write(file, acme={"keys": [digest("sesame")]})
    identity = Identity({}, file)
    write(file, acme={"keys": [digest("sesame")], "guard": GUARD | {"denied_phrases": ["another of test_prepare"]}})
    await followed(identity)
    check(identity, compiles, [pb.GenerateRequest()])
