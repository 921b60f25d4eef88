"""When a provider says to come back (RFC 9110, section 10.2.3)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from services.llm.openai_errors import DEFAULT_RETRY_S, LONGEST_RETRY_S, retry_after_s

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
        ("soon", DEFAULT_RETRY_S),
        ("", DEFAULT_RETRY_S),
    ],
)
def test_seconds_and_dates_are_read_and_bounded(header: str, seconds: float) -> None:
    assert retry_after_s({"retry-after": header}, NOW) == seconds
