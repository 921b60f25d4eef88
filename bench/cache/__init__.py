"""The semantic cache: how right its hits are on labelled pairs, or how it does with many entries.

`--pairs FILE.jsonl.gz`: hits of the cache as it ships, alone and in the presence of all others, beside cosine alone.
`--verdicts N` besides: half of the pairs are traffic of which N candidates are judged by their labels, and the other
half is measured before and after.
`--lookups N` takes so many of them.
`--entries N` (100,000 where nothing is said): building, searching, changing and restarting with so many entries. Their
vectors are synthetic: clusters drawn around real embeddings of generated questions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table

from bench.cache import quality, scale
from bench.cache.pairs import BadPairs
from services.cache.conversion import NoModel

REFUSED = (BadPairs, NoModel)  # to be told without a traceback
Progress = Callable[[str], None]


async def run(
    progress: Progress,
    entries: int | None = None,
    pairs: Path | None = None,
    verdicts: int = 0,
    lookups: int | None = None,
) -> dict[str, object]:
    """Measure one or both, in this process. Raises `REFUSED`."""
    result: dict[str, object] = {}
    if (given := verdicts or lookups) and not pairs:
        raise BadPairs(f"--verdicts and --lookups: with --pairs FILE.jsonl.gz, got {given} without")
    if pairs:
        result["pairs"] = await quality.measure(pairs, progress, verdicts, lookups)
    if entries or not pairs:
        result["entries"] = await scale.measure(entries or 100_000, progress)
    return result


def table(result: Mapping[str, Any]) -> Group:
    """The result, for people."""
    tables = {"pairs": _pairs, "entries": _entries}
    return Group(*(show(result[name]) for name, show in tables.items() if name in result))


def _pairs(told: Mapping[str, Any]) -> Table:
    title = (
        f"{told['lookups']:,} lookups, {told['duplicates']:,} of them of duplicates, decided by {told['decided_by']}"
    )
    table = Table(title=title)
    for column in ("", "found", "wrong of lookups", "95%", "precision", "unlabelled", "p50 ms", "p99 ms"):
        table.add_column(column, justify="right" if column else "left")
    for name in filter(told.__contains__, ("alone", "together")):
        row = told[name]
        if "before" in row:
            table.add_row(f"{name}, before", *_rates(row["before"]))
        after = f" after {row['verdicts']:,} verdicts, at {row['threshold']:.3f}" if "before" in row else ""
        times = (f"{row['ms']['whole'][key]:.1f}" for key in ("p50", "p99"))
        table.add_row(name + after, *_rates(row), *times)
        for oracle, best in row.get("cosine_alone_oracle", {}).items():
            cells = (f"{best['found']:.3f}", f"{best['wrong_of_lookups']:.2%}")
            table.add_row(f"  cosine alone from {best['threshold']:.3f}, oracle {oracle.replace('_', ' ')}", *cells)
    return table


def _rates(row: Mapping[str, Any]) -> tuple[str, ...]:
    limits = " to ".join(f"{limit:.2%}" for limit in row["wrong_of_lookups_95"])
    shares = (f"{row['found']:.3f}", f"{row['wrong_of_lookups']:.2%}", limits, f"{row['precision']:.3f}")
    return (*shares, str(row["unlabelled"]))


def _entries(told: Mapping[str, Any]) -> Table:
    table = Table(title=f"{told['entries']:,} entries with synthetic vectors", show_header=False)
    for name, value in told.items():
        shown = ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else str(value)
        table.add_row(name.replace("_", " "), shown)
    return table
