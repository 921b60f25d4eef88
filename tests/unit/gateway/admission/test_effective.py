"""Which of the mesh, a tenant and a request decides, where each has its limit."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.effective import (
    Budget,
    TokenLimit,
    budget_of,
    effective_settings,
    note_asked,
    with_token_limit,
)
from services.gateway.config import GatewaySettings
from services.gateway.decisions import By, Changed, Changes, describe
from services.gateway.errors import BudgetSpent
from services.runtime.deadline import Deadline
from tests.unit.gateway.admission.tenants_file import tenant
from tests.unit.gateway.answer.scene import ACME


@pytest.mark.parametrize(("whole", "truncation"), [(False, None), (True, pb.TRUNCATION_DISABLED)])
def test_settings_that_no_level_changes_are_the_gateways_own(whole: bool, truncation: pb.Truncation | None) -> None:
    settings = GatewaySettings(llm_addresses={"m": "a:1"}, prompt={"whole": whole})
    request = pb.GenerateRequest(prompt=pb.PromptPolicy(truncation=truncation))
    assert effective_settings(request, ACME, settings).prompt is settings.prompt


@pytest.mark.parametrize(
    ("own", "asked", "limit", "sent"),
    [
        (0, None, TokenLimit(), None),
        (0, 500, TokenLimit(), 500),
        (100, None, TokenLimit(100), 100),
        (100, 500, TokenLimit(100, 500), 100),
        (100, 100, TokenLimit(), 100),
        (100, 50, TokenLimit(), 50),
        (100, -5, TokenLimit(), -5),  # which is refused
    ],
)
def test_the_tokens_of_an_answer(own: int, asked: int | None, limit: TokenLimit, sent: int | None) -> None:
    request = pb.GenerateRequest(sampling=chat_pb2.Sampling(max_tokens=asked, min_tokens=80))
    before = request.SerializeToString()
    shorter, found = with_token_limit(request, tenant(max_tokens=own))
    assert (found, request.SerializeToString()) == (limit, before), "the caller's request is not changed"
    assert (shorter.sampling.max_tokens if shorter.sampling.HasField("max_tokens") else None) == sent
    assert not limit.most or shorter.sampling.min_tokens <= limit.most
    changes = Changes()
    note_asked(changes, shorter, ACME, Budget(600_000, tokens=found), math.inf, checks_forms=False)
    values = f"{asked} tokens → {own} tokens" if asked else f"{own} tokens"
    assert [describe(change) for change in changes] == ([f"max_tokens: {values}, by tenant"] if limit.most else [])


@pytest.mark.parametrize(
    ("own", "asked", "budget"),
    [
        ({}, None, Budget(700, By.MESH)),
        ({}, 300, Budget(300, By.REQUEST, 300)),
        ({}, 99_000, Budget(9_000, By.MESH, 99_000)),
        ({"max_budget_ms": 200}, 300, Budget(200, By.TENANT, 300)),
        ({"max_budget_ms": 500}, None, Budget(500, By.TENANT)),
        ({"default_budget_ms": 2_000}, None, Budget(2_000, By.TENANT)),
        ({"default_budget_ms": 200}, None, Budget(200, By.TENANT)),
        ({"default_budget_ms": 200}, 300, Budget(300, By.REQUEST, 300)),
        ({"default_budget_ms": 2_000, "max_budget_ms": 100}, None, Budget(100, By.TENANT)),
        ({"default_budget_ms": 99_000}, None, Budget(9_000, By.MESH)),
    ],
)
def test_a_budget(own: dict[str, int], asked: int | None, budget: Budget) -> None:
    settings = GatewaySettings(llm_addresses={"m": "a:1"}, default_budget_ms=700, max_budget_ms=9_000)
    assert budget_of(pb.GenerateRequest(budget_ms=asked), tenant(**own), settings, Deadline.never()) == budget


def test_a_callers_deadline_limits_the_budget_and_is_not_reported() -> None:
    settings = GatewaySettings(llm_addresses={"m": "a:1"}, default_budget_ms=700)
    found = budget_of(pb.GenerateRequest(), ACME, settings, Deadline(0.11, lambda: 0.0))
    assert replace(found, ms=round(found.ms)) == Budget(100, By.REQUEST, reported=False)
    with pytest.raises(BudgetSpent):
        budget_of(pb.GenerateRequest(), ACME, settings, Deadline(0.005, lambda: 0.0))


@pytest.mark.parametrize(
    ("mesh", "own", "repair", "checked", "by"),
    [
        (False, None, None, False, By.REQUEST),
        (False, None, False, True, By.REQUEST),
        (True, None, None, True, By.MESH),
        (False, True, None, True, By.TENANT),
        (True, False, None, False, By.REQUEST),
        (True, False, True, True, By.REQUEST),
    ],
)
def test_the_form_of_an_answer(mesh: bool, own: bool | None, repair: bool | None, checked: bool, by: By) -> None:
    request = pb.GenerateRequest(repair=repair, response_format=chat_pb2.ResponseFormat(json_object=True))
    acme, changes = tenant(check_forms=own), Changes()
    settings = GatewaySettings(llm_addresses={"m": "a:1"}, response_format={"check": mesh})
    assert effective_settings(request, acme, settings).checks_form == checked
    note_asked(changes, request, acme, Budget(600_000), math.inf, checks_forms=mesh)
    assert changes.by[Changed.FORM_CHECKED] == by
