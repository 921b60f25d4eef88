"""Who is asking, what they may ask for, and what they may have: passed once, before any work is done.

`validation.validate` hands on a `Question`, `control.AdmissionControl` a reservation.
"""
