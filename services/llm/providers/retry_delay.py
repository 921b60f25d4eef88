"""When a provider says to come back: `retry-after`, and the headers of its rate limits.

Sources: RFC 9110, section 10.2.3; https://platform.openai.com/docs/guides/rate-limits;
https://docs.anthropic.com/en/api/rate-limits; https://openrouter.ai/docs/api-reference/limits; Gemini says it in
its error (`google.rpc.RetryInfo`): https://ai.google.dev/gemini-api/docs/rate-limits
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

DEFAULT_RETRY_S = 1.0
LONGEST_RETRY_S = 300.0
_LIMIT = re.compile(r"(x|anthropic)-ratelimit-(?P<before>.*?)(?P<word>remaining|reset)(?P<after>-.*)?")
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")  # 6m0s, 1.5s, 20ms
_UNITS_S = (3600.0, 60.0, 1.0, 0.001)
_A_DATE_S, _A_DATE_MS = 1e9, 1e11  # a number this large is a time since 1970


def retry_delay_s(headers: Mapping[str, str], error: Mapping[str, Any] = {}, now: datetime | None = None) -> float:
    """The delay in the headers, or in the error object; a second where neither has one."""
    said = said_delay_s(headers, now)
    if said is None:
        details = given if isinstance(given := error.get("details"), list) else ()
        delays = (each["retryDelay"] for each in details if isinstance(each, dict) and "retryDelay" in each)
        said = _delay(str(next(delays, "")), now or datetime.now(UTC))
    return DEFAULT_RETRY_S if said is None else min(max(said, 0.0), LONGEST_RETRY_S)


def said_delay_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """The seconds after which to ask again, where the headers say. `retry-after` goes before `x-ratelimit-*`, of which
    those count that have nothing left."""
    now = now or datetime.now(UTC)
    milliseconds = _number(headers.get("retry-after-ms", ""))
    said = _delay(headers.get("retry-after", ""), now) if milliseconds is None else milliseconds / 1000
    if said is None:
        said = max(_until_reset(headers, now), default=None)
    return None if said is None else min(max(said, 0.0), LONGEST_RETRY_S)


def _until_reset(headers: Mapping[str, str], now: datetime) -> Iterator[float]:
    """How long each limit that is used up lasts. OpenAI: `x-ratelimit-remaining-tokens`; Anthropic:
    `anthropic-ratelimit-tokens-remaining`; OpenRouter: `x-ratelimit-remaining`."""
    for name, value in headers.items():
        found = _LIMIT.fullmatch(name.lower())
        if not found or found["word"] != "remaining" or value.strip() != "0":
            continue
        reset = name.lower().replace("remaining", "reset")
        delay = _delay(headers.get(reset, ""), now)
        if delay is not None:
            yield delay


def _delay(value: str, now: datetime) -> float | None:
    """Given as seconds, as a duration, or as a time in one of its three ways."""
    if (number := _number(value)) is not None:
        is_date = number > _A_DATE_S
        return number / (1000 if number > _A_DATE_MS else 1) - now.timestamp() if is_date else number
    duration = _DURATION.fullmatch(value)
    if value and duration:
        return sum(float(part or 0) * unit for part, unit in zip(duration.groups(), _UNITS_S, strict=True))
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(ValueError, TypeError, OverflowError):
            return (read(value) - now).total_seconds()
    return None


def _number(value: str) -> float | None:
    with suppress(ValueError):
        number = float(value)
        return None if math.isnan(number) else number
    return None
