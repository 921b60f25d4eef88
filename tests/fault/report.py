"""What the fault tests measured: `make faults` writes it into docs/faults.json and docs/faults.md.

A test asserts the behaviour. A figure fails it only where it is more than `SLACK` times its limit, and a time only
where it is also more than five seconds above the limit; of the times of many calls the median counts. The reason: the
machines that run tests are shared, and stand still for seconds. Whether the limit itself was met stands in the table.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median

from tests.fault.apart import MEASURED
from tests.fault.asking import Outcome, p99_ms
from tests.fault.bare_calls import BareCalls, Slowed
from tests.fault.figure import SLACK, Figure
from tests.fault.page import PAGE, Measured, dump, page

CASES = (*range(1, 39), *range(40, 54))
SECTIONS = {
    "Processes that die, stop, freeze or load": (1, 2, 3, 4, 5, 14, 15, 39, 53),
    "Networks": (6, 7, 9, 10, 38),
    "Slow, silent and failing backends": (8, 11, 12, 20, 26),
    "Load, and callers that leave": (13, 16, 17, 31, 33, 34, 45, 50),
    "Hostile input": (18, 19, 21, 22, 27, 36, 37, 41, 42, 43, 48),
    "Memory": (29, 44),
    "Identity, tenants and secrets": (23, 24, 25, 28, 30, 32, 35, 40, 46, 47, 49, 51, 52),
}


@dataclass(slots=True)
class Row:
    """One fault and how it went. Times are given in seconds and shown in milliseconds."""

    case: int
    fault: str
    ok: int = 0
    degraded: int = 0
    failed: int = 0
    detection: Figure | None = None
    recovery: Figure | None = None
    figures: list[Figure] = field(default_factory=list)
    passed: bool = False
    began: float = field(default_factory=time.monotonic)
    bare: BareCalls | None = None

    def count(self, *outcomes: Outcome) -> None:
        """Add calls."""
        for outcome in outcomes:
            self.ok += outcome.ok
            self.degraded += outcome.degraded
            self.failed += outcome.failed

    def tally(self, ok: int = 0, degraded: int = 0, failed: int = 0) -> None:
        """Add calls that are no answers."""
        self.ok, self.degraded, self.failed = self.ok + ok, self.degraded + degraded, self.failed + failed

    def detected(self, seconds: float, limit_s: float) -> None:
        """How long the fault went unnoticed."""
        self.detection = Figure("detection", seconds * 1000, limit_s * 1000)
        self.detection.check()

    def recovered(self, seconds: float, limit_s: float) -> None:
        """How long after its end all was well again."""
        self.recovery = Figure("recovery", seconds * 1000, limit_s * 1000)
        self.recovery.check()

    def bare_p99_ms(self) -> float | None:
        """The p99 of bare calls since this row began; None without bare calls."""
        return p99_ms(self.bare.since(self.began)) if self.bare else None

    def measured(
        self,
        name: str,
        value: float,
        limit: float,
        unit: str = " ms",
        at_least: bool = False,
        slack: float = SLACK,
        bare: float | None = None,
    ) -> None:
        """Anything else that has a limit. `slack`: how many times off it may be; `bare`: the same of a bare call."""
        self.figures.append(Figure(name, value, limit, unit, at_least, bare))
        self.figures[-1].check(slack)

    def slowed(
        self,
        what: str,
        before: Sequence[float],
        during: Sequence[float],
        slack: float = SLACK,
        bare: Slowed | None = None,
    ) -> None:
        """How many times longer `what` took in the fault than before it. The table shows the 99th percentiles, limit 2,
        and the slowest call, limit twice the slowest before and 50 ms.

        The median must not be `slack` times its limit; in a run that does not measure it is a time as any other, and
        must also be five seconds above its limit to fail. `before` and `during`: seconds of each call, in any order.
        `bare`: of a bare call, where that is not the one that is made all the time.
        """
        here = Slowed(before, during)
        bare = bare or (self.bare.slowed(self.began) if self.bare else None)
        times, slowest_ms = (bare.p99_times(), bare.slowest_ms()) if bare else (None, None)
        self.figures.append(Figure(what, here.p99_times(), 2, " ×", bare=times))
        slowest, limit_ms = what.replace("p99", "slowest"), 2 * max(before) * 1000 + 50
        self.figures.append(Figure(slowest, here.slowest_ms(), limit_ms, " ms", bare=slowest_ms))
        name, middle_ms, limit_ms = f"{what}, median", median(during) * 1000, 2 * median(before) * 1000
        ratio = Figure(name, 2 * middle_ms / limit_ms, 2, " ×")
        (ratio if MEASURED in os.environ else Figure(name, middle_ms, limit_ms)).check(slack)

    def result(self) -> Measured:
        """The row of `faults.json`."""
        section = next(title for title, cases in SECTIONS.items() if self.case in cases)
        figures = tuple(figure for figure in (self.detection, self.recovery, *self.figures) if figure)
        return Measured(section, self.fault, self.ok, self.degraded, self.failed, self.passed, figures)


@dataclass(slots=True)
class Report:
    """All rows of a run."""

    rows: list[Row] = field(default_factory=list)
    bare: BareCalls | None = None

    @contextmanager
    def case(self, number: int, fault: str) -> Iterator[Row]:
        """A row; it has passed when the block ends without an exception."""
        row = Row(number, fault, bare=self.bare)
        self.rows.append(row)
        yield row
        row.passed = True

    def missing(self) -> list[int]:
        """Cases without a row."""
        return sorted(set(CASES) - {row.case for row in self.rows})

    def write(self, page_file: Path = PAGE) -> None:
        """The data, sorted by section and case, and the page."""
        order = list(SECTIONS)
        results = [row.result() for row in sorted(self.rows, key=lambda row: row.case)]
        results.sort(key=lambda result: order.index(result.section))
        data = dump(f"{os.cpu_count()} shared cores with {_versions()}", results)
        page_file.with_suffix(".json").write_text(data)
        page_file.write_text(page(data))


def _versions() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("grpcio", "protobuf", "uvloop"))
    return f"Python {platform.python_version()}, {packages}"
