"""Collections: what a search finds by meaning, by words and by both, and what it costs.

The real cache service and its real embedder, on the project's own pages: 143 questions, written by hand, with the
sections that answer them (`questions.tsv`). All rankings are asked question by question in turns.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from rich.console import Group
from rich.table import Table

from bench.retrieval import beside, large
from bench.retrieval.questions import pages, questions
from bench.stats import percentiles
from hedgerow import AsyncCollectionClient
from launcher.processes import ServiceProcess, ServiceSpec, free_port

HITS = 10
ROUNDS = 5  # of all questions, for times
Progress = Callable[[str], None]
Ranking = Literal["both", "meaning", "words"]
RANKINGS: tuple[Ranking, ...] = ("meaning", "words", "both")


async def run(progress: Progress) -> dict[str, object]:
    """Start a cache service, measure, stop it. About three minutes."""
    with tempfile.TemporaryDirectory() as folder:
        async with _service(Path(folder)) as address, AsyncCollectionClient(address) as client:
            progress("retrieval: putting the project's pages")
            ingest = await _ingest(client)
            progress(f"retrieval: {ROUNDS} rounds of {len(questions())} questions by each ranking")
            rankings = await _ask(client)
            lookups = await beside.measure(address, client, progress)
    progress(f"retrieval: searching {large.SNIPPETS:,} drawn snippets")
    return {"ingest": ingest, "rankings": rankings, "lookups": lookups, "large": large.measure()}


@asynccontextmanager
async def _service(folder: Path) -> AsyncIterator[str]:
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "ADDRESS": address,
        "COLLECTIONS_DATABASE": str(folder / "collections.db"),
        "EMBEDDING_CACHE_BYTES": "1",  # each question is embedded each time it is asked
    }
    spec = ServiceSpec(
        "cache", "services.cache", address, {f"HEDGEROW_CACHE_{name}": value for name, value in settings.items()}
    )
    process = ServiceProcess(spec, folder)
    try:
        await process.wait_serving()
        yield address
    finally:
        await process.stop()


async def _ingest(client: AsyncCollectionClient) -> dict[str, float]:
    """Twice: what is new, and what is known."""
    documents = pages()
    snippets, times = 0, []
    for _ in range(2):
        started = time.perf_counter()
        put = [await client.put("pages", source, text) for source, text in documents.items()]
        times.append(time.perf_counter() - started)
        snippets = sum(each.snippets for each in put)
    return {
        "documents": len(documents),
        "bytes": sum(len(text.encode()) for text in documents.values()),
        "snippets": snippets,
        "new_s": round(times[0], 2),
        "snippets_per_s": round(snippets / times[0], 1),
        "unchanged_s": round(times[1], 3),
    }


async def _ask(client: AsyncCollectionClient) -> dict[str, object]:
    ranks: dict[Ranking, list[int | None]] = {ranking: [] for ranking in RANKINGS}
    times: dict[Ranking, list[float]] = {ranking: [] for ranking in RANKINGS}
    for number in range(ROUNDS + 1):  # the first is a warm-up, and its answers are those of all
        for question in questions():
            for ranking in RANKINGS:
                started = time.perf_counter()
                found = await client.search("pages", question.text, limit=HITS, ranking=ranking)
                if number:
                    times[ranking].append((time.perf_counter() - started) * 1000)
                else:
                    ranks[ranking].append(question.rank(found.hits))
    return {ranking: {**_recall(ranks[ranking]), "ms": percentiles(times[ranking])} for ranking in RANKINGS}


def _recall(ranks: list[int | None]) -> dict[str, float]:
    """Shares of the questions that are answered by one of the first so many snippets, and the mean reciprocal rank."""

    def within(most: int) -> float:
        return round(sum(rank is not None and rank <= most for rank in ranks) / len(ranks), 3)

    reciprocal = sum(1 / rank for rank in ranks if rank) / len(ranks)
    return {"recall_at_1": within(1), "recall_at_5": within(5), "recall_at_10": within(10), "mrr": round(reciprocal, 3)}


def table(result: Mapping[str, Any]) -> Group:
    """The result, for people."""
    return Group(_rankings(result), _costs(result))


def _rankings(result: Mapping[str, Any]) -> Table:
    table = Table(title=f"What is found: {len(questions())} questions, {result['ingest']['snippets']} snippets")
    for column in ("by", "recall@1", "recall@5", "recall@10", "MRR", "p50 ms", "p99 ms"):
        table.add_column(column, justify="left" if column == "by" else "right")
    for name, row in result["rankings"].items():
        found = (row[key] for key in ("recall_at_1", "recall_at_5", "recall_at_10", "mrr"))
        times = (row["ms"][key] for key in ("p50", "p99"))
        table.add_row(name, *(f"{value:.3f}" for value in found), *(f"{value:.1f}" for value in times))
    return table


def _costs(result: Mapping[str, Any]) -> Table:
    ingest, lookups, large = result["ingest"], result["lookups"], result["large"]
    table = Table(title="What it costs", show_header=False)
    table.add_row("ingest", f"{ingest['snippets_per_s']} snippets/s; again, unchanged: {ingest['unchanged_s']} s")
    for name in ("alone", "beside"):
        told = lookups[f"{name}_ms"]
        table.add_row(f"lookup, {name} an ingest".replace("alone an", "without an"), _times(told))
    for name, told in large["search_ms"].items():
        table.add_row(f"search of {large['snippets']:,} by {name}", _times(told))
    table.add_row("their file, their start", f"{large['disk_mb']} MB, {large['load_s']} s")
    return table


def _times(told: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.1f} ms" for name, value in told.items())
