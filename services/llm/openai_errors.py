"""What a provider's refusal means to our caller. Neither the credential nor the provider's page ever gets out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from services.llm.errors import EngineBusy, EngineDown, ProviderRefused
from services.runtime.errors import InvalidInput, ServiceError, shorten

DEFAULT_RETRY_S = 1.0
LONGEST_RETRY_S = 300.0


def to_error(status: int, headers: Mapping[str, str], body: str, api_key: str) -> ServiceError:
    """The error for an HTTP status other than 200."""
    if status in (401, 403):
        return ProviderRefused("the provider does not accept our credential", status=str(status))
    if status == 404:
        return ProviderRefused("the provider does not know the model or the address", status=str(status))
    if status == 429:
        return EngineBusy("the provider limits our rate", retry_delay_s=retry_after_s(headers))
    if status in (400, 413, 422):
        field, said = _explanation(body)
        if api_key:
            said = said.replace(api_key, "…")
        return InvalidInput(field, f"what the provider takes ({shorten(said, 160)})", f"HTTP {status}")
    return EngineDown(f"the provider answered HTTP {status}", status=str(status))


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float:
    """`Retry-After` in seconds, given there as seconds or as a date (RFC 9110, section 10.2.3)."""
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - (now or datetime.now(UTC))).total_seconds()
        except (ValueError, TypeError):
            return DEFAULT_RETRY_S
    return DEFAULT_RETRY_S if math.isnan(seconds) else min(max(seconds, 0.0), LONGEST_RETRY_S)


def in_stream_status(event: str) -> int:
    """The HTTP status that an error inside a stream would have had; 502 where it does not say."""
    code = json.loads(event)["error"]
    code = code.get("code") if isinstance(code, dict) else None
    return code if isinstance(code, int) else 502


def _explanation(body: str) -> tuple[str, str]:
    """(the parameter at fault, what the provider said), as far as it is OpenAI's error object."""
    try:
        error = json.loads(body)["error"]
        return str(error.get("param") or "request"), " ".join(str(error.get("message") or "").split())
    except (ValueError, KeyError, TypeError, AttributeError):
        return "request", "it did not say why"
