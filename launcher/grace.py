"""How long a service may take to stop: its own grace for calls in flight, and what it does after the last one."""

from __future__ import annotations

import os
from collections.abc import Mapping

_USUAL_MS = 5_000  # of a service whose settings name none
SLACK_S = 10.0  # beyond the grace


def grace_s(given: object) -> float:
    """The grace of a setting `GRACE_MS`, which may be missing. A service itself refuses one that is no number."""
    text = str(given)
    return int(text if text.isdecimal() else _USUAL_MS) / 1000


def grace_of(service: str, environment: Mapping[str, str]) -> float:
    """The grace of a service that is started with more variables than this process has."""
    name = f"HEDGEROW_{service.upper()}_GRACE_MS"
    return grace_s(environment.get(name, os.environ.get(name)))
