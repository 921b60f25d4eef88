"""Whether fields are left out that a model's API does not have: as the request, its tenant or the gateway says."""

from __future__ import annotations

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant


def omits(request: pb.GenerateRequest, tenant: Tenant, *, by_default: bool) -> bool:
    """`by_default`: the gateway's."""
    if request.untranslated:
        return request.untranslated == pb.UNTRANSLATED_OMIT
    return tenant.untranslated == "omit" if tenant.untranslated else by_default
