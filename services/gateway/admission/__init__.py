"""Admission: identity, validation, quotas and load shedding. A request passes it once, before any work is done.

`validation.validate` hands on a `Question`, `control.AdmissionControl` a reservation.
"""
