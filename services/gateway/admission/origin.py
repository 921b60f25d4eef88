"""Who asked for what is done to a request: the request itself, its tenant's settings, or the mesh's."""

from __future__ import annotations

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.budget import Budget
from services.gateway.admission.identity import Tenant
from services.gateway.changes import By, Changed, Changes


def origin(request: pb.GenerateRequest, tenant: Tenant, what: Changed) -> By:
    """Of a change that may be asked for at several levels."""
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
    changes: Changes, request: pb.GenerateRequest, tenant: Tenant, budget: Budget, *, checks_forms: bool
) -> None:
    """What is known of the changes when a request is admitted. `checks_forms`: the gateway does by itself."""
    changes.limit_time(budget.ms, budget.asked_ms, budget.by, told=budget.told)
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
    """Of what a guard does by the first of these fields that has it do something."""
    for field in fields:
        if getattr(tenant.guard, field) != "off":
            return _of_setting(f"guard.{field}", tenant)
        if getattr(policy, field):
            return By.REQUEST
    return _of_setting("guard.denied_phrases", tenant)


def _of_setting(name: str, tenant: Tenant) -> By:
    return By.TENANT if name in tenant.said else By.MESH
