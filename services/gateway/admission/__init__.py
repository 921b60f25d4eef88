"""Admission: identity, validation, quotas and load shedding. A request passes it once, before any work is done.

`identity.Identity` gives the tenant, `validation.validate` a `Question`, `control.AdmissionControl` a reservation; each
refuses with an error of `services/gateway/errors.py`. `provider_fields` checks fields that only a model's provider
reads.
"""
