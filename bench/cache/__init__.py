"""The semantic cache: how right its hits are on labelled pairs, or how it does with many entries.

`--pairs FILE.jsonl.gz`: hits of the cache as it ships, alone and in the presence of all others, beside cosine alone.
`--verdicts N` besides: half of the pairs are traffic of which N candidates are judged by their labels, and the other
half is measured before and after.
`--lookups N` takes so many of them.
`--entries N` (100,000 where nothing is said): building, searching, changing and restarting with so many entries. Their
vectors are synthetic: clusters drawn around real embeddings of generated questions.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.cache import quality, scale
from bench.cache.pairs import BadPairs
from services.cache.conversion import NoModel

REFUSED = (BadPairs, NoModel)  # reported without a traceback
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
