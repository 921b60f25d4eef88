"""When a provider says to come back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from services.llm.providers.retry_delay import DEFAULT_RETRY_S, LONGEST_RETRY_S, retry_delay_s, said_delay_s

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("2.5", 2.5),
        ("0", 0),
        ("-1", 0),
        ("86400", LONGEST_RETRY_S),
        ("nan", DEFAULT_RETRY_S),
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0),
        ("Thu, 01 Jan 2026 12:00:30 +99999999999999", DEFAULT_RETRY_S),
        ("soon", DEFAULT_RETRY_S),
        ("", DEFAULT_RETRY_S),
    ],
)
def test_seconds_and_dates_are_read_and_bounded(header: str, seconds: float) -> None:
    assert retry_delay_s({"retry-after": header}, now=NOW) == seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "1"}, 1),
        ({"retry-after": "3", "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "60s"}, 3),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m30.5s"}, 90.5),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "20ms"}, 0.02),
        ({"X-RateLimit-Remaining": "0", "x-ratelimit-reset": "1767268810000"}, 10),
        ({"x-ratelimit-remaining-tokens": "7", "x-ratelimit-reset-tokens": "9s"}, None),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-01-01T12:00:20Z",
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2026-01-01T12:00:40Z",
            },
            40,
        ),
        ({"x-ratelimit-remaining-tokens": "0"}, None),
        ({}, None),
    ],
)
def test_rate_limit_headers_count_where_nothing_is_left(headers: dict[str, str], seconds: float | None) -> None:
    assert said_delay_s(headers, now=NOW) == seconds
