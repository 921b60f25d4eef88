"""What becomes of a request's prompt: as the request says, else its tenant, else the gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.prompt.window import is_whole
from services.gateway.settings.prompt import PromptSettings

_DIETS: Mapping[int, str] = {pb.DIET_OFF: "off", pb.DIET_SYSTEM: "system", pb.DIET_ALL: "all"}


def prompting(policy: pb.PromptPolicy, tenant: Tenant, settings: PromptSettings) -> PromptSettings:
    """The gateway's settings, with what the tenant and the request have in their place. Of a conversation that is not
    `whole` turns are left out, and with a `summary_model` they are summed up."""
    said: dict[str, Any] = {}
    if diet := _DIETS.get(policy.diet) or tenant.prompt.diet:
        said["diet"] = diet
    own = tenant.prompt.conversation
    said["whole"] = is_whole(policy, own == "whole" if own else settings.whole)
    if own == "cut":
        said["summary_model"] = ""
    changed = {name: value for name, value in said.items() if getattr(settings, name) != value}
    return settings.model_copy(update=changed) if changed else settings
