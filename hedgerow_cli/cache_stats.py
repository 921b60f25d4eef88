"""The requests and the output of `hedgerow cache stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_COUNTS = {
    "lookups": "lookups",
    "exact": "exact_hits",
    "semantic": "semantic_hits",
    "missed": "misses",
    "refused": "refused",
    "stored": "stores",
}


async def get_stats(tenant: str, timeout_s: float, stub: Any) -> dict[str, Any]:
    """Counts of a cache service by name, None for what is not known; of the tenant's categories a list. Raises what
    gRPC does."""
    from hedgerow.cache.v1 import cache_pb2

    reply = await stub.GetStats(cache_pb2.GetStatsRequest(tenant=tenant), timeout=timeout_s)
    fields = cache_pb2.GetStatsResponse.DESCRIPTOR.fields
    unknown = {field.name for field in fields if field.has_presence and not reply.HasField(field.name)}
    stats: dict[str, Any] = {
        field.name: None if field.name in unknown else getattr(reply, field.name) for field in fields
    }
    stats["category_thresholds"] = [
        {"category": each.category, "threshold": each.threshold, "verified": each.verified, "drift": each.drift}
        for each in reply.category_thresholds
    ]
    return stats


def show(found: Sequence[dict[str, Any]]) -> None:
    """Print the counts of each service, beside its `address`."""
    from rich.table import Table

    from hedgerow_cli.terminal import PlainConsole

    table = Table("cache", box=None)  # a row for each count: a terminal of 60 columns has room for three caches
    for each in found:
        table.add_column(each["address"], justify="right")
    table.add_row("entries", *(str(each["entries"]) for each in found))
    table.add_row("KiB", *(str(each["bytes"] // 1024) for each in found))
    for label, name in _COUNTS.items():
        table.add_row(label, *(str(each[name]) for each in found))
    verdicts = Table("cache", "verified", "wrong, of all lookups", "threshold", box=None)
    categories = Table("cache", "category", "verified", "threshold", box=None)
    for each in found:
        if each["wrong_share"] is not None:
            verdicts.add_row(each["address"], *_verdicts(each))
        for one in each["category_thresholds"]:
            categories.add_row(each["address"], one["category"], str(one["verified"]), _threshold(one))
    console = PlainConsole()
    console.print(table)
    for further in (verdicts, categories):
        if further.rows:
            console.print(further)


def _verdicts(each: dict[str, Any]) -> tuple[str, str, str]:
    """The verification columns: samples, the share of wrong hits with its bounds, and the resulting threshold."""
    share, low, high = (each[name] for name in ("wrong_share", "wrong_share_lower", "wrong_share_upper"))
    return str(each["verified"]), f"{share:.2%} ({low:.2%} to {high:.2%})", _threshold(each)


def _threshold(each: dict[str, Any]) -> str:
    """The threshold in force, and what of the traffic is not as it was when it was found."""
    threshold = f"{each['threshold']:.3f}" if each["threshold"] < 1 else "off"
    return f"{threshold}, drifting: {each['drift']}" if each["drift"] else threshold
