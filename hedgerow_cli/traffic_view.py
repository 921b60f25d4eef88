"""The traffic of a mesh as tables."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from hedgerow_cli.traffic import Flow, GatewayTraffic

_FLOW = ("req/s", "errors/s", "p50 ms", "p99 ms")
_UNITS = ((3_600, "h"), (60, "min"), (1, "s"))
_MOST_ROWS = 20  # of tenants and of errors, the most frequent; --json has all


def tables(traffic: GatewayTraffic) -> Iterator[Table]:
    """Requests of the mesh and of its tenants, models, and errors."""
    requests = _table(f"requests, {_window(traffic)}", *_FLOW)
    requests.add_row("all", *_cells(traffic.mesh))
    for name, flow in sorted(traffic.tenants.items(), key=lambda each: -each[1].per_s)[:_MOST_ROWS]:
        requests.add_row(Text(f"tenant {name}"), *_cells(flow))
    yield requests
    models = _table("model", *_FLOW, "in flight", "waiting", "limit")
    for name, load, flow in traffic.by_model():
        models.add_row(Text(name or "none"), *_cells(flow), *map(str, load.as_object().values()))
    if models.row_count:
        yield models
    errors = _table("error", "errors/s", "tenant")
    for (tenant, reason), per_s in [*traffic.errors.items()][:_MOST_ROWS]:
        errors.add_row(Text(reason, "red"), f"{per_s:.1f}", Text(tenant))
    if errors.row_count:
        yield errors


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=True)
    for name in columns:
        left = name == columns[0] or name == "tenant"
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    return table


def _cells(flow: Flow) -> Iterator[str | Text]:
    yield f"{flow.per_s:.1f}"
    yield Text(f"{flow.errors_per_s:.1f}", "red" if flow.errors_per_s else "")
    for ms in (flow.p50_ms, flow.p99_ms):
        yield "-" if ms is None else f"{ms:.0f}"


def _window(traffic: GatewayTraffic) -> str:
    if not traffic.since_start:
        return f"over {traffic.over_s:.1f} s"
    seconds, unit = next((each for each in _UNITS if traffic.over_s >= 10 * each[0]), _UNITS[-1])
    return f"over the {traffic.over_s / seconds:.0f} {unit} since the start"
