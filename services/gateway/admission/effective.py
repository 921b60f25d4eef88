"""The settings that hold for one request: of one that exists at several levels the request's own comes first, then its
tenant's, then the gateway's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.constraint import is_checked
from services.gateway.admission.identity import Tenant
from services.gateway.config import GatewaySettings
from services.gateway.decisions import By, Changed, Changes
from services.gateway.errors import BudgetSpent
from services.gateway.guard.checks import Checks, guard_checks
from services.gateway.prompt.window import is_whole
from services.gateway.settings.prompt import PromptSettings
from services.runtime.deadline import Deadline

_DIETS: Mapping[int, str] = {pb.DIET_OFF: "off", pb.DIET_SYSTEM: "system", pb.DIET_ALL: "all"}


class TokenLimit(NamedTuple):
    """The most tokens of an answer by its tenant's settings, and what the request asked for; 0: not limited, or it did
    not say."""

    most: int = 0
    asked: int = 0


@dataclass(frozen=True, slots=True)
class Budget:
    """Milliseconds; `asked_ms` is what the request asked for, 0 where it did not say. `reported`: whether it changes
    the request. The caller's own time-out, which it would have without a gateway, does not."""

    ms: float
    by: By = By.MESH
    asked_ms: float = 0
    reported: bool = True
    tokens: TokenLimit = TokenLimit()  # noqa: RUF009  # it is frozen


def with_token_limit(request: pb.GenerateRequest, tenant: Tenant) -> tuple[pb.GenerateRequest, TokenLimit]:
    """The request, with no more tokens for its answer than its tenant may have."""
    asked, most = request.sampling.max_tokens, tenant.max_tokens
    if not most or (request.sampling.HasField("max_tokens") and asked <= most):
        return request, TokenLimit()
    shorter = pb.GenerateRequest()
    shorter.CopyFrom(request)
    shorter.sampling.max_tokens = most
    if request.sampling.HasField("min_tokens"):
        shorter.sampling.min_tokens = min(request.sampling.min_tokens, most)
    return shorter, TokenLimit(most, asked)


def budget_of(request: pb.GenerateRequest, tenant: Tenant, settings: GatewaySettings, deadline: Deadline) -> Budget:
    """The smallest of the request's budget, or the one that is usual where it names none, of the tenant's cap, of the
    gateway's, and of the time that the caller waits. Of equal ones the first limits. Raises `BudgetSpent`."""
    asked = request.budget_ms if request.HasField("budget_ms") else 0
    own = tenant.default_budget_ms
    usual = (own, By.TENANT) if own else (settings.default_budget_ms, By.MESH)
    limits = [(asked, By.REQUEST) if asked else usual]
    limits += [(tenant.max_budget_ms, By.TENANT)] if tenant.max_budget_ms else []
    limits += [(settings.max_budget_ms, By.MESH)]
    ms, by = min(limits, key=lambda limit: limit[0])
    left_ms = deadline.remaining() * 1000
    if math.isfinite(left_ms):
        left_ms -= settings.finish_reserve_ms  # the last event has a way to go
    if left_ms <= 0:
        raise BudgetSpent(f"deadline: {settings.finish_reserve_ms:.0f} ms or more, got less")
    if left_ms < ms:
        return Budget(left_ms, By.REQUEST, asked, reported=False)
    return Budget(ms, by, asked)


@dataclass(frozen=True, slots=True)
class EffectiveSettings:
    """The settings of one request. `guard`: None without checks; `checks_form`: whether its answer is compared with its
    `response_format`; `omits`: whether fields that the model's API lacks are omitted; `first_text_ms`: infinite without
    a limit."""

    guard: Checks | None = None
    prompt: PromptSettings = field(default_factory=PromptSettings)
    checks_form: bool = False
    omits: bool = False
    first_text_ms: float = math.inf


def effective_settings(request: pb.GenerateRequest, tenant: Tenant, settings: GatewaySettings) -> EffectiveSettings:
    """The settings of `request`, which is within its limits."""
    return EffectiveSettings(
        guard_checks(tenant.guard, request),
        _of_prompt(request.prompt, tenant, settings.prompt),
        is_checked(request, tenant.checks_forms(by_default=settings.response_format.check)),
        _omits(request, tenant, by_default=settings.untranslated == "omit"),
        _first_text_ms(request, settings.first_token_budget_ms),
    )


def _omits(request: pb.GenerateRequest, tenant: Tenant, *, by_default: bool) -> bool:
    if request.untranslated:
        return request.untranslated == pb.UNTRANSLATED_OMIT
    return tenant.untranslated == "omit" if tenant.untranslated else by_default


def _first_text_ms(request: pb.GenerateRequest, by_default: float) -> float:
    given = request.HasField("first_token_budget_ms")
    return (request.first_token_budget_ms if given else by_default) or math.inf


def _of_prompt(policy: pb.PromptPolicy, tenant: Tenant, settings: PromptSettings) -> PromptSettings:
    """Of a conversation that is not `whole` turns are left out, and with a `summary_model` they are summed up."""
    said: dict[str, Any] = {}
    if compressed := _DIETS.get(policy.diet) or tenant.prompt.diet:
        said["diet"] = compressed
    own = tenant.prompt.conversation
    said["whole"] = is_whole(policy, own == "whole" if own else settings.whole)
    if own == "cut":
        said["summary_model"] = ""
    changed = {name: value for name, value in said.items() if getattr(settings, name) != value}
    return settings.model_copy(update=changed) if changed else settings


def origin(request: pb.GenerateRequest, tenant: Tenant, what: Changed) -> By:
    """The level that asked for a change."""
    match what:
        case Changed.SYSTEM_PROMPT | Changed.TOOLS:
            return By.REQUEST
        case Changed.CACHE | Changed.SHARED:
            return By.REQUEST if request.cache.use else _of_setting("hits.others", tenant)
        case Changed.PROMPT_COMPRESSED:
            return By.REQUEST if request.prompt.diet else _of_setting("prompt.diet", tenant)
        case Changed.CONVERSATION_CUT | Changed.CONVERSATION_SUMMARIZED:
            asked = request.prompt.truncation or request.prompt.whole
            return By.REQUEST if asked else _of_setting("prompt.conversation", tenant)
        case Changed.FIELD_OMITTED:
            return By.REQUEST if request.untranslated else By.TENANT if tenant.untranslated else By.MESH
        case Changed.PROMPT_MASKED:
            return _of_guard(request.guard, tenant, "secrets", "personal")
        case Changed.ANSWER_MASKED | Changed.ANSWER_ENDED:
            return _of_guard(request.guard, tenant, "answer_secrets", "answer_personal")
    return By.MESH


def note_asked(
    changes: Changes,
    request: pb.GenerateRequest,
    tenant: Tenant,
    budget: Budget,
    first_text_ms: float,
    *,
    checks_forms: bool,
) -> None:
    """Record the changes that are known at admission. `checks_forms`: the gateway validates output by default."""
    changes.limit_time(budget.ms, budget.asked_ms, budget.by, reported=budget.reported)
    first_text_by = By.REQUEST if request.HasField("first_token_budget_ms") else By.MESH
    changes.limit_first_text(first_text_ms, budget.ms, first_text_by)
    changes.limit_tokens(budget.tokens.most, By.TENANT, budget.tokens.asked)
    if request.HasField("response_format"):
        form = By.MESH if checks_forms else By.REQUEST
        if tenant.check_forms is not None:
            form = By.TENANT if tenant.check_forms else By.REQUEST
        changes.by |= dict.fromkeys((Changed.FORM_CHECKED, Changed.FORM_REPAIRED), form)
    if request.mesh_tools:
        changes.add(
            Changed.TOOLS, after=", ".join(each.name or each.source for each in request.mesh_tools), by=By.REQUEST
        )


def _of_guard(policy: pb.GuardPolicy, tenant: Tenant, *fields: str) -> By:
    """The level that set the first of these fields of a guard that is not off."""
    for name in fields:
        if getattr(tenant.guard, name) != "off":
            return _of_setting(f"guard.{name}", tenant)
        if getattr(policy, name):
            return By.REQUEST
    return _of_setting("guard.denied_phrases", tenant)


def _of_setting(name: str, tenant: Tenant) -> By:
    return By.TENANT if name in tenant.overrides else By.MESH
