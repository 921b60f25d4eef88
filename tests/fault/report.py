"""What the fault tests measured, as a table: `make faults` writes it into docs/faults.md.

A test asserts the behaviour. A figure fails it only where it is more than `_SLACK` times its limit, and a time only
where it is also more than `_STILL_S` above the limit; of the times of many calls the median counts. The reason: the
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

from tests.fault.asking import Outcome, p99_ms
from tests.fault.bare_calls import BareCalls, Slowed

_SLACK = 10  # separates calls that work from calls that hang
_AS_BARE = 1.2  # times what a bare call is slowed
_STILL_S = 5  # longer than a shared machine stands still
_SECONDS = {" ms": 0.001, " s": 1.0}
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
_HEADER = """\
# Faults

Look up what callers get when a part of the mesh breaks. Each row is a test in `tests/fault/` with real processes on
loopback; `make faults` runs them and writes this page.

- **ok/degraded/failed** count calls. A degraded answer ended early or lacks a stage, and says so. A failed call ended
  with an error, which some faults must cause.
- **measured** has each figure with its limit; a **bold** one misses it. Machines that run tests are shared, so a test
  fails only where the behaviour is wrong, or a figure is about ten times off its limit and a time also by five seconds.
- *bare*: the same figure of a bare `grpc.aio` call at the same time; in floods, under the same flood. An *italic*
  figure misses its limit and is at most 1.2 times that of the bare call: the machine was busy.
- (mesh): through Envoy, with two replicas of each service. A and B are tenants.
"""
_TABLE = ("| fault | ok/degraded/failed | measured |", "|---|---|---|")


@dataclass(frozen=True, slots=True)
class Figure:
    """Something measured and its limit; `at_least` turns the limit round. `unit` follows the number."""

    name: str
    value: float
    limit: float
    unit: str = " ms"
    at_least: bool = False
    bare: float | None = None  # the same of a bare call

    @property
    def as_bare(self) -> bool:
        """Whether it is no more than the machine makes of any call."""
        return self.bare is not None and self.value <= _AS_BARE * self.bare

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def check(self, slack: float = _SLACK) -> None:
        """Fail where it is no matter of a slow machine any more."""
        if self.at_least:
            off = self.value < self.limit / slack
        else:
            still = _STILL_S / _SECONDS[self.unit] if self.unit in _SECONDS else 0
            off = self.value > max(self.limit * slack, self.limit + still)
        assert not off, f"{self}: more than {slack} times off"

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        unit = self.unit.lstrip() if self.unit.startswith((" ×", " %")) else self.unit
        bare = "" if self.bare is None else f"; bare {_number(self.bare)}{unit}"
        return f"{self.name} {_number(self.value)}{unit} ({sign}{_number(self.limit)}{bare})"

    def marked(self) -> str:
        """Bold where it misses its limit, in italics where a bare call does as well."""
        mark = "" if self.met else "*" if self.as_bare else "**"
        return f"{mark}{self}{mark}"


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
        """Of bare calls since this row began, where they are made."""
        return p99_ms(self.bare.since(self.began)) if self.bare else None

    def measured(
        self,
        name: str,
        value: float,
        limit: float,
        unit: str = " ms",
        at_least: bool = False,
        slack: float = _SLACK,
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
        slack: float = _SLACK,
        bare: Slowed | None = None,
    ) -> None:
        """How many times longer `what` took in the fault than before it. The table shows the 99th percentiles, limit 2,
        and the slowest call, limit twice the slowest before and 50 ms.

        The medians must not be `slack` times that apart. `before` and `during`: seconds of each call, in any order.
        `bare`: of a bare call, where that is not the one that is made all the time.
        """
        here = Slowed(before, during)
        bare = bare or (self.bare.slowed(self.began) if self.bare else None)
        times, slowest_ms = (bare.p99_times(), bare.slowest_ms()) if bare else (None, None)
        self.figures.append(Figure(what, here.p99_times(), 2, " ×", bare=times))
        slowest, limit_ms = what.replace("p99", "slowest"), 2 * max(before) * 1000 + 50
        self.figures.append(Figure(slowest, here.slowest_ms(), limit_ms, " ms", bare=slowest_ms))
        Figure(f"{what}, median", median(during) / median(before), 2, " ×").check(slack)

    @property
    def met(self) -> bool:
        """Whether the behaviour was right and every limit was met."""
        return self.passed and all(figure.met for figure in self._all())

    def _all(self) -> list[Figure]:
        return [figure for figure in (self.detection, self.recovery, *self.figures) if figure]

    def cells(self) -> list[str]:
        """Of the table's row."""
        counts = f"{self.ok}/{self.degraded}/{self.failed}"
        wrong = () if self.passed else ("**wrong behaviour**",)
        return [self.fault, counts, "; ".join((*wrong, *(figure.marked() for figure in self._all())))]


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

    def write(self, path: Path) -> None:
        """The page, a table for each section, sorted by case."""
        rows = sorted(self.rows, key=lambda row: row.case)
        lines: list[str] = []
        for title, cases in SECTIONS.items():
            cells = [row.cells() for row in rows if row.case in cases]
            lines += [f"## {title}", "", *_TABLE, *map(_line, cells), ""]
        machine = f"Measured on {os.cpu_count()} shared cores with {_versions()}."
        met = f"{sum(row.met for row in self.rows)} of {len(rows)} rows meet all their limits."
        path.write_text("\n".join([_HEADER, machine, met, "", *lines]))


def _versions() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("grpcio", "protobuf", "uvloop"))
    return f"Python {platform.python_version()}, {packages}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
