"""Collections: what a search finds by meaning, by words and by both, and what it costs.

The real cache service and its real embedder, on the project's own pages: 140 questions, written by hand, with the
sections that answer them (`questions.tsv`). All rankings are asked question by question in turns.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal

from bench.asking import in_turns
from bench.cluster import Progress, clustered
from bench.stats import percentiles
from hedgerow import AsyncCollectionClient, CollectionHit

HITS = 10
ROUNDS = 5  # of all questions
Ranking = Literal["both", "meaning", "words"]
RANKINGS: tuple[Ranking, ...] = ("meaning", "words", "both")
PAGES = Path(__file__).parents[2] / "docs"
_FILE = Path(__file__).with_name("questions.tsv")


@dataclass(frozen=True)
class Place:
    """A page, or a section of one."""

    page: str
    section: str

    def holds(self, hit: CollectionHit) -> bool:
        """Whether a snippet stands there."""
        return hit.source == self.page and (not self.section or self.section in hit.title.split(" › "))


@dataclass(frozen=True)
class Question:
    """A question, and the places of which any answers it."""

    text: str
    places: tuple[Place, ...]

    def rank(self, hits: Iterable[CollectionHit]) -> int | None:
        """The place of the first snippet that answers it, from 1; None where none does."""
        right = (number for number, hit in enumerate(hits, 1) if any(place.holds(hit) for place in self.places))
        return next(right, None)


@cache
def questions() -> list[Question]:
    """All of them, in the order of the file."""
    lines = (line for line in _FILE.read_text().splitlines() if not line.startswith("#"))
    return [_parsed(line) for line in lines]


def pages() -> dict[str, str]:
    """Text by source."""
    return {path.relative_to(PAGES).as_posix(): path.read_text() for path in sorted(PAGES.rglob("*.md"))}


def _parsed(line: str) -> Question:
    text, *places = line.split("\t")
    parted = (place.partition("#") for place in places)
    return Question(text, tuple(Place(page, section) for page, _, section in parted))


async def run(progress: Progress) -> dict[str, object]:
    """Start a cache service, measure, stop it. About a minute."""
    async with clustered(progress) as cluster:
        service = await cluster.cache(
            collections_database=str(cluster.folder / "collections.db"),
            embedding_cache_bytes=1,  # each question is embedded each time it is asked
        )
        async with AsyncCollectionClient(service.spec.address) as client:
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
    asked = questions()[number % len(questions())]
    started = time.perf_counter()
    found = await client.search("pages", asked.text, limit=HITS, ranking=ranking)
    return asked.rank(found.hits), (time.perf_counter() - started) * 1000


def _recall(ranks: list[int | None]) -> dict[str, float]:
    """Shares of the questions that are answered by one of the first so many snippets, and the mean reciprocal rank."""
    within = {f"recall_at_{most}": sum(rank is not None and rank <= most for rank in ranks) for most in (1, 5, 10)}
    reciprocal = sum(1 / rank for rank in ranks if rank)
    return {name: round(found / len(ranks), 3) for name, found in {**within, "mrr": reciprocal}.items()}
