"""The semantic cache: how right its hits are on labelled pairs, or how it does with many entries.

`--pairs FILE.jsonl.gz`: hits of the cache as it ships, beside cosine alone.
`--verdicts N` besides: half of the pairs are traffic of which N candidates are judged by their labels, and the other
half is measured before and after.
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
    progress: Progress, entries: int | None = None, pairs: Path | None = None, verdicts: int = 0
) -> dict[str, object]:
    """Measure one or both, in this process. Raises `REFUSED`."""
    result: dict[str, object] = {}
    if verdicts and not pairs:
        raise BadPairs(f"--verdicts: with --pairs FILE.jsonl.gz, got {verdicts} without")
    if pairs:
        result["pairs"] = await quality.measure(pairs, progress, verdicts)
    if entries or not pairs:
        result["entries"] = await scale.measure(entries or 100_000, progress)
    return result
