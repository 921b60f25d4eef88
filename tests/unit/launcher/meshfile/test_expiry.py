"""When a key expires: durations and times."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from hedgerow.tenants import read_moment
from launcher.meshfile.expiry import expiry_after, written

NOW = datetime(2026, 11, 30, 13, 17, 5, 900_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "expires"),
    [
        ("30s", "2026-11-30T13:17:35Z"),
        ("5m", "2026-11-30T13:22:05Z"),
        ("12h", "2026-12-01T01:17:05Z"),
        ("30d", "2026-12-30T13:17:05Z"),
        ("2w", "2026-12-14T13:17:05Z"),
        ("1mo", "2026-12-30T13:17:05Z"),
        ("3mo", "2027-02-28T13:17:05Z"),  # which has no 30th
        ("25mo", "2028-12-30T13:17:05Z"),
        ("2027-01-31", "2027-01-31T00:00:00Z"),
        ("2027-01-31T18:00:00Z", "2027-01-31T18:00:00Z"),
        ("2027-01-31T18:00:00+02:00", "2027-01-31T16:00:00Z"),
        ("2027-01-31 18:00", "2027-01-31T18:00:00Z"),
    ],
)
def test_a_duration_counts_from_now_and_a_time_is_in_utc(given: str, expires: str) -> None:
    assert written(expiry_after(given, NOW)) == expires


@pytest.mark.parametrize("given", ["", "30", "0d", "-1d", "d", "1y", "1.5h", "30 d", "soon", "999999w", "999999mo"])
def test_anything_else_is_refused_with_what_is_possible(given: str) -> None:
    with pytest.raises(ValueError, match=r"a duration such as 30d \(units s, m, h, d, w, mo\), or a time such as"):
        expiry_after(given, NOW)


def test_a_time_that_is_over_is_refused() -> None:
    with pytest.raises(
        ValueError, match="in the future is needed, got 2026-11-30T00:00:00Z; it is 2026-11-30T13:17:05Z"
    ):
        expiry_after("2026-11-30", NOW)


@pytest.mark.parametrize(
    "given",
    [
        "2027-01-31T00:00:00Z",
        date(2027, 1, 31),
        datetime(2027, 1, 31),  # as YAML reads a time without an offset
        datetime(2027, 1, 31, 2, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_a_file_may_have_the_time_as_text_or_as_yaml_reads_it(given: Any) -> None:
    assert written(read_moment(given)) == "2027-01-31T00:00:00Z"


@pytest.mark.parametrize("given", [30, 1.5, True, None, "30", "tomorrow", [], {}])
def test_a_number_is_no_time(given: Any) -> None:
    with pytest.raises(ValueError, match="a time such as 2027-01-31"):
        read_moment(given)


@pytest.mark.parametrize("given", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"])
def test_a_time_beyond_the_years_of_utc_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="a time of the years 1 to 9999 in UTC is needed"):
        read_moment(given)
