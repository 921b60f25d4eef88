"""A file of tenants that changes while the gateway runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from services.gateway.admission.identity import Identity, Tenant
from services.gateway.settings.tenants import TenantSettings
from tests.keys import digest


def write(file: Path, **tenants: Any) -> None:
    """As a careful operator does: all at once. JSON is YAML too."""
    unfinished = file.with_suffix(".new")
    unfinished.write_text(json.dumps(tenants))
    unfinished.replace(file)


async def followed(identity: Identity) -> None:
    """Look twice: a change of the file is noticed at one look, and read at the next."""
    await identity.refresh()
    await identity.refresh()


def tenant(**own: Any) -> Tenant:
    """As the tenants' settings make it."""
    settings = TenantSettings.model_validate({"keys": [digest("k")], **own})
    return Identity({"acme": settings}, None).tenant("Bearer k")
