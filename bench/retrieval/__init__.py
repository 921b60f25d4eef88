"""Collections: what a search finds by meaning, by words and by both, and what it costs.

The real cache service and its real embedder, on the project's own pages: 143 questions, written by hand, with the
sections that answer them (`questions.tsv`). All rankings are asked question by question in turns.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal

from bench.asking import in_turns
from bench.cluster import Progress, clustered
from bench.retrieval.questions import pages, questions
from bench.stats import percentiles
from hedgerow import AsyncCollectionClient

HITS = 10
ROUNDS = 5  # of all questions
Ranking = Literal["both", "meaning", "words"]
RANKINGS: tuple[Ranking, ...] = ("meaning", "words", "both")


async def run(progress: Progress) -> dict[str, object]:
    """Start a cache service, measure, stop it. About a minute."""
    async with clustered(progress) as cluster:
        cache = await cluster.cache(
            collections_database=str(cluster.folder / "collections.db"),
            embedding_cache_bytes=1,  # each question is embedded each time it is asked
        )
        async with AsyncCollectionClient(cache.spec.address) as client:
            progress("putting the project's pages")
            documents = pages()
            put = [await client.put("pages", source, text) for source, text in documents.items()]
            progress(f"{ROUNDS} rounds of {len(questions())} questions by each ranking")
            ways: dict[str, Callable[[int], Awaitable[tuple[int | None, float]]]]
            ways = {ranking: partial(_search, client=client, ranking=ranking) for ranking in RANKINGS}
            count = len(questions())
            found = await in_turns(ways, ROUNDS * count, count)
    return {
        "documents": len(documents),
        "snippets": sum(each.snippets for each in put),
        "found": {ranking: _recall([rank for rank, _ in each[:count]]) for ranking, each in found.items()},
        "search_ms": {ranking: percentiles([spent_ms for _, spent_ms in each]) for ranking, each in found.items()},
    }


async def _search(number: int, client: AsyncCollectionClient, ranking: Ranking) -> tuple[int | None, float]:
    """The place of the first right snippet, and milliseconds."""
    question = questions()[number % len(questions())]
    started = time.perf_counter()
    found = await client.search("pages", question.text, limit=HITS, ranking=ranking)
    return question.rank(found.hits), (time.perf_counter() - started) * 1000


def _recall(ranks: list[int | None]) -> dict[str, float]:
    """Shares of the questions that are answered by one of the first so many snippets, and the mean reciprocal rank."""
    within = {f"recall_at_{most}": sum(rank is not None and rank <= most for rank in ranks) for most in (1, 5, 10)}
    reciprocal = sum(1 / rank for rank in ranks if rank)
    return {name: round(found / len(ranks), 3) for name, found in {**within, "mrr": reciprocal}.items()}
