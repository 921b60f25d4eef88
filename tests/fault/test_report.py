"""The table of faults says what was measured and nothing better."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.apart import MEASURED
from tests.fault.bare_calls import BareCalls
from tests.fault.page import DATA, FAMILIES, IN_SHORT, PAGE, load, page
from tests.fault.report import CASES, SECTIONS, Report, Row


def figures(row: Row) -> str:
    return "; ".join(figure.marked() for figure in row.result().figures)


def test_a_figure_past_its_limit_is_missed_and_one_far_past_it_fails():
    report = Report()
    with report.case(1, "fault") as row:
        row.tally(ok=2, failed=1)
        row.detected(0.06, limit_s=0.05)
        row.measured("success", 99.9, 99.5, " %", at_least=True)
    result = row.result()
    assert (result.fault, result.ok, result.failed) == ("fault", 2, 1)
    assert figures(row) == "**detection 60 ms (≤50)**; success 99.9% (≥99.5)"
    with pytest.raises(AssertionError, match="recovery 5,200 ms"), report.case(2, "hangs") as row:
        row.recovered(5.2, limit_s=0.1)
    assert row.result().missed() == "**wrong behaviour**; **recovery 5,200 ms (≤100)**"
    with pytest.raises(AssertionError, match="attempts 11"), report.case(2, "no time") as row:
        row.measured("attempts", 11, 1, "")


def test_a_machine_that_stood_still_misses_a_limit_and_fails_no_test(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(MEASURED, raising=False)
    with Report().case(1, "fault") as row:
        row.recovered(3, limit_s=0.1)
        row.slowed("B's p99", [0.1] * 40, [0.1] * 39 + [3.0])
    assert figures(row) == ("**recovery 3,000 ms (≤100)**; **B's p99 30× (≤2)**; **B's slowest 3,000 ms (≤250)**")
    with Report().case(1, "fault") as row:
        row.slowed("others", [0.1] * 40, [3.0] * 40)
    with pytest.raises(AssertionError, match="others, median 6,000 ms"), Report().case(1, "fault") as row:
        row.slowed("others", [0.1] * 40, [6.0] * 40)


def test_a_run_that_measures_compares_medians_by_their_ratio(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(MEASURED, "1")
    with pytest.raises(AssertionError, match="others, median 30×"), Report().case(1, "fault") as row:
        row.slowed("others", [0.1] * 40, [3.0] * 40)


def test_a_caller_is_compared_with_bare_calls_of_the_same_time():
    calls = [(0.0, 0.001)]
    report = Report(bare=BareCalls(calls, [0.001]))
    with report.case(1, "fault") as row:
        calls.append((row.began, 0.003))
        row.slowed("B's p99", [0.01] * 40, [0.035] * 40)
    assert figures(row) == "*B's p99 3.5× (≤2; bare 3×)*; B's slowest 35 ms (≤70; bare 3 ms)"
    with report.case(2, "fault") as row:
        calls.append((row.began, 0.002))
        row.slowed("B's p99", [0.01] * 40, [0.035] * 40)
    assert figures(row).startswith("**B's p99 3.5× (≤2; bare 2×)**;")


def test_a_case_with_wrong_behaviour_is_not_met():
    report = Report()
    with pytest.raises(ValueError, match="wrong"), report.case(1, "fault"):
        raise ValueError("wrong")
    assert not report.rows[0].result().met


def test_each_case_has_a_section():
    assert sorted(case for cases in SECTIONS.values() for case in cases) == sorted({*CASES, 39})


def test_the_page_is_sorted_by_section_and_case(tmp_path: Path):
    report = Report()
    for number in (12, 8, 2):
        with report.case(number, f"fault {number}"):
            pass
    report.write(tmp_path / "page.md")
    written = (tmp_path / "page.md").read_text()
    order = [written.index(each) for each in ("| fault 2 |", "## Slow", "| fault 8 |", "| fault 12 |")]
    assert order == sorted(order)
    assert "3 of 3 rows meet all their limits." in written
    assert report.missing() == sorted(set(CASES) - {2, 8, 12})


def test_rows_of_a_family_are_one_row_with_the_slowest_times_and_misses_are_listed(tmp_path: Path):
    report = Report()
    for process, seconds in (("gateway", 0.2), ("router", 0.6), ("llm", 0.3)):
        with report.case(1, f"SIGKILL of one {process} (mesh), started again") as row:
            row.tally(ok=1)
            row.recovered(seconds, limit_s=0.5)
    report.write(tmp_path / "page.md")
    written = (tmp_path / "page.md").read_text()
    assert "gateway, llm, cache, router | 3/0/0 | recovery 600 ms |" in written
    assert "| SIGKILL of one router (mesh), started again | **recovery 600 ms (≤500)** |" in written
    assert "2 of 3 rows meet all their limits." in written


def test_the_page_is_what_its_data_say_and_no_family_is_empty():
    assert PAGE.read_text() == page(DATA.read_text())
    _, rows = load(DATA.read_text())
    assert {row.family for row in rows if row.section not in IN_SHORT} >= set(FAMILIES)
