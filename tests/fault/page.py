"""Writes docs/faults.md from docs/faults.json, which has every row: `python -m tests.fault.page`.

Rows that differ in one respect (`families.toml`) are one row of the page, with the sums of their calls and the worst
of each figure. Rows that miss a limit are listed first, one by one.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fault.figure import Figure

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
DATA = PAGE.with_suffix(".json")
FAMILIES: dict[str, str] = tomllib.loads(Path(__file__).with_name("families.toml").read_text())
_HEADER = """\
# Faults

Look up the results of calls while a part of the mesh breaks. Tests in `tests/fault/` break real processes on loopback;
`make faults` runs them and writes this page and [faults.json](faults.json), which has all figures with their limits.

- **ok/degraded/failed** counts calls. A degraded answer ended early or lacks a stage, and says so. A failed call ended
  with an error, which some faults must cause.
- **Bold** figures miss their limit (in parentheses). *bare* is the same figure of a bare `grpc.aio` call at the same
  time; an *italic* figure is at most 1.2 times that: the machine was busy.
- (mesh): through Envoy, with two replicas of each service. A and B are tenants.
"""
_TIMES = ("detection", "recovery")
# Sections of which the page has the sums alone: counts of its calls say little.
IN_SHORT = {
    "Networks": "Black holes, silent servers, resets, byte-sized segments, connections that die idle or in use",
    "Load, and callers that leave": "Overload, floods of calls and connections, cancelled calls, batches",
    "Hostile input": "Malformed and oversized messages, compression bombs, hostile pictures, recordings and models",
    "Memory": "Full caches and queues, expired entries, and bodies that lack one byte",
    "Identity, tenants and secrets": "Certificates, keys, tokens, other origins, and tenants that attack each other",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """One row of `faults.json`."""

    section: str
    fault: str
    ok: int
    degraded: int
    failed: int
    passed: bool
    figures: tuple[Figure, ...]

    @property
    def met(self) -> bool:
        """Whether the behaviour was right and every limit was met."""
        return self.passed and all(figure.met for figure in self.figures)

    @property
    def family(self) -> str:
        """The family's name on the page."""
        return next((title for title, pattern in FAMILIES.items() if re.fullmatch(pattern, self.fault)), self.fault)

    def missed(self) -> str:
        """The figures that miss their limits, with those of bare calls."""
        wrong = () if self.passed else ("**wrong behaviour**",)
        return "; ".join((*wrong, *(figure.marked() for figure in self.figures if not figure.met)))


def dump(machine: str, rows: Iterable[Measured]) -> str:
    """The text of `faults.json`, one line for each row."""
    lines = ",\n".join(
        json.dumps(
            {
                **{name: getattr(row, name) for name in ("section", "fault", "ok", "degraded", "failed", "passed")},
                "figures": [figure.record() for figure in row.figures],
            },
            ensure_ascii=False,
        )
        for row in rows
    )
    return f'{{"machine": {json.dumps(machine)}, "rows": [\n{lines}\n]}}\n'


def load(text: str) -> tuple[str, list[Measured]]:
    """The machine and the rows of `faults.json`."""
    data = json.loads(text)
    rows = [{**row, "figures": tuple(Figure(**figure) for figure in row["figures"])} for row in data["rows"]]
    return data["machine"], [Measured(**row) for row in rows]


def page(text: str) -> str:
    """The page for that `faults.json`."""
    machine, rows = load(text)
    missing = [row for row in rows if not row.met]
    met = f"{len(rows) - len(missing)} of {len(rows)} rows meet all their limits."
    lines = [_HEADER, f"Measured on {machine}.", met, ""]
    if missing:
        lines += ["## Rows that miss a limit", "", "| fault | figure |", "|---|---|"]
        lines += [*(_line((row.fault, row.missed())) for row in missing), ""]
    for title in dict.fromkeys(row.section for row in rows):
        section = [row for row in rows if row.section == title]
        lines += [f"## {title}", "", *(_in_short(title, section) if title in IN_SHORT else _table(section)), ""]
    return "\n".join(lines)


def _table(rows: Sequence[Measured]) -> Iterator[str]:
    yield from ("| fault | ok/degraded/failed | slowest detection, recovery |", "|---|---|---|")
    yield from map(_line, _families(rows))


def _in_short(title: str, rows: Sequence[Measured]) -> Iterator[str]:
    right, met = sum(row.passed for row in rows), sum(row.met for row in rows)
    yield f"{IN_SHORT[title]}:"
    yield f"{right} of {len(rows)} faults have the required result, {met} within their limits (faults.json)."


def _families(rows: Sequence[Measured]) -> Iterator[tuple[str, ...]]:
    for title in dict.fromkeys(row.family for row in rows):
        members = [row for row in rows if row.family == title]
        counts = "/".join(str(sum(getattr(row, name) for row in members)) for name in ("ok", "degraded", "failed"))
        yield title, counts, ", ".join(_slowest(members))


def _slowest(rows: Sequence[Measured]) -> Iterator[str]:
    figures = [figure for row in rows for figure in row.figures]
    for name in _TIMES:
        if named := [figure for figure in figures if figure.name == name]:
            yield max(named, key=lambda figure: figure.load).brief()


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page(DATA.read_text()))
