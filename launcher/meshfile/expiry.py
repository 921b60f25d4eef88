"""When an API key expires: as the command line is given it, and as a file has it."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator

_DURATION = re.compile(r"([1-9]\d{0,5})(mo|[smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_A_TIME = "a time such as 2027-01-31 or 2027-01-31T18:00:00Z"


def expiry_after(given: str, now: datetime) -> datetime:
    """The moment that a duration from `now` means, in the units of LiteLLM's `duration` (30s, 30m, 30h, 30d, 2w, 1mo),
    or the time itself. In whole seconds, UTC. Raises ValueError for other texts, and for a moment that is over."""
    found = _DURATION.fullmatch(given)
    try:
        expires = _later(now, int(found[1]), found[2]) if found else read_moment(given)
    except (ValueError, OverflowError):
        raise ValueError(
            f"a duration such as 30d (units s, m, h, d, w, mo), or {_A_TIME}, is needed, got {given!r}"
        ) from None
    if expires <= now:
        raise ValueError(f"a time in the future is needed, got {written(expires)}; it is {written(now)}")
    return expires.replace(microsecond=0)


def read_moment(given: Any) -> datetime:
    """A time of ISO 8601, as text or as YAML reads it; in UTC where it names no offset. Raises ValueError."""
    try:
        if isinstance(given, str):
            given = datetime.fromisoformat(given)
        elif isinstance(given, date) and not isinstance(given, datetime):
            given = datetime.combine(given, time())
        if isinstance(given, datetime):
            return given.astimezone(UTC) if given.tzinfo else given.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError("a time of the years 1 to 9999 in UTC is needed") from None
    except ValueError:
        pass
    raise ValueError(f"{_A_TIME} is needed")


def written(moment: datetime) -> str:
    """As files and people get it: `2027-01-31T18:00:00Z`."""
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _later(now: datetime, count: int, unit: str) -> datetime:
    """In months it is the same day of that month, or its last."""
    if unit in _UNITS:
        return now + timedelta(**{_UNITS[unit]: count})
    years, month = divmod(now.month - 1 + count, 12)
    year, month = now.year + years, month + 1
    return now.replace(year=year, month=month, day=min(now.day, monthrange(year, month)[1]))


Moment = Annotated[datetime, BeforeValidator(read_moment, json_schema_input_type=str)]
