"""Costs and gains of the mesh: xDS, Envoy, failover between regions, prefix-aware routing."""

from __future__ import annotations

from bench.cluster import Progress, clustered
from bench.mesh import failover, paths, prefixes


async def run(progress: Progress) -> dict[str, object]:
    """All of it, one after the other. About four minutes."""
    found: dict[str, object] = {}
    for name, measure in (("paths", paths.measure), ("failover", failover.measure), ("prefix", prefixes.measure)):
        async with clustered(progress) as cluster:
            found[name] = await measure(cluster)
    return found
