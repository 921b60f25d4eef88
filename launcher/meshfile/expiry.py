"""The expiry of an API key, on the command line and in files."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import BeforeValidator

from hedgerow.tenants import A_TIME, read_moment

_DURATION = re.compile(r"([1-9]\d{0,5})(mo|[smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def expiry_after(given: str, now: datetime) -> datetime:
    """The moment that a duration from `now` means, in the units of LiteLLM's `duration` (30s, 30m, 30h, 30d, 2w, 1mo),
    or the time itself. In whole seconds, UTC. Raises ValueError for other texts, and for a moment that is over."""
    found = _DURATION.fullmatch(given)
    try:
        expires = _later(now, int(found[1]), found[2]) if found else read_moment(given)
    except (ValueError, OverflowError):
        raise ValueError(
            f"a duration such as 30d (units s, m, h, d, w, mo), or {A_TIME}, is needed, got {given!r}"
        ) from None
    if expires <= now:
        raise ValueError(f"a time in the future is needed, got {written(expires)}; it is {written(now)}")
    return expires.replace(microsecond=0)


def written(moment: datetime) -> str:
    """The time as text: `2027-01-31T18:00:00Z`."""
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _later(now: datetime, count: int, unit: str) -> datetime:
    """The time after `count` units. With months it is the same day of that month, or its last."""
    if unit in _UNITS:
        return now + timedelta(**{_UNITS[unit]: count})
    years, month = divmod(now.month - 1 + count, 12)
    year, month = now.year + years, month + 1
    return now.replace(year=year, month=month, day=min(now.day, monthrange(year, month)[1]))


Moment = Annotated[datetime, BeforeValidator(read_moment, json_schema_input_type=str)]
