"""What a mesh costs and what it is good for: xDS, Envoy, workers, failover between regions, prefix-aware routing."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table

from bench.mesh import failover, paths, prefixes, workers
from bench.mesh.cluster import Progress
from bench.stats import ADDED


async def run(progress: Progress) -> dict[str, Any]:
    """All of it, one after the other. About five minutes."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        result: dict[str, Any] = await paths.measure(root / "paths", progress)
        result["workers"] = await workers.measure(root / "workers", progress)
        result["failover"] = await failover.measure(root / "failover", progress)
        result["prefix_routing"] = await prefixes.measure(root / "prefixes", progress)
    return result


def table(result: Mapping[str, Any]) -> Group:
    """The result, for people."""
    return Group(_paths(result), _workers(result), _failover(result["failover"]), _prefixes(result["prefix_routing"]))


def _paths(result: Mapping[str, Any]) -> Table:
    table = _table(f"A call, ms ({paths.SAMPLES} on each path)", "path", "p50", "p95", "p99", "added p50", "added p99")
    table.caption = ADDED
    for name in ("static", "xds", "envoy"):
        keys = ("p50_ms", "p95_ms", "p99_ms", "added_p50_ms", "added_p99_ms")
        table.add_row(name, *(f"{result[name][key]:.2f}" for key in keys))
    return table


def _workers(result: Mapping[str, Any]) -> Table:
    table = _table("Answers a second", "workers", "rps")
    for name in ("1", "2"):
        table.add_row(name, f"{result['workers'][name]:.0f}")
    return table


def _failover(result: Mapping[str, Any]) -> Table:
    table = _table(f"A region dies ({result['calls']} calls)", "when", "p50, ms", "p99, ms")
    for name, each in result["total_ms"].items():
        table.add_row(name, f"{each['p50']:.0f}", f"{each['p99']:.0f}")
    table.caption = f"{result['failed_calls']} failed, the slowest took {result['slowest_ms']:.0f} ms"
    return table


def _prefixes(result: Mapping[str, Mapping[str, float]]) -> Table:
    names = ("first token p50, ms", "mean", "p95", "cached tokens", "requests")
    table = _table("Prompts that begin alike", "routing", *names)
    for row in prefixes.rows(result):
        table.add_row(*row)
    return table


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(first, title=title, title_justify="left")
    for name in others:
        table.add_column(name, justify="right")
    return table
