"""The cache's metrics for Prometheus, read from its counters at each scrape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.cache.answers import Answers

if TYPE_CHECKING:
    from services.cache.collections.collections import Collections


@contextmanager
def exported(answers: Answers, collections: Collections | None) -> Iterator[None]:
    """Export the metrics of a cache and its collections inside the block."""
    collector = _Counts(answers, collections)
    REGISTRY.register(collector)
    try:
        yield
    finally:
        REGISTRY.unregister(collector)


class _Counts(Collector):
    def __init__(self, answers: Answers, collections: Collections | None):
        self._answers, self._collections = answers, collections

    def collect(self) -> Iterable[Metric]:
        yield from self._of_answers()
        if self._collections:
            yield from self._of_collections(self._collections)

    def _of_answers(self) -> Iterable[Metric]:
        stats, embedder = self._answers.stats, self._answers.embedder
        lookups = {"exact": stats.exact_hits, "semantic": stats.semantic_hits, "miss": stats.misses}
        removals = {"evicted": stats.evictions, "expired": stats.expirations}
        embeddings = {"memory": embedder.hits, "computed": embedder.misses}
        yield _counter("lookups", "Lookups by verdict.", "verdict", lookups)
        yield _counter("removals", "Entries evicted or expired.", "reason", removals)
        yield _counter("embeddings", "Embeddings by source.", "source", embeddings)
        yield from self._of_verdicts()
        yield CounterMetricFamily("hedgerow_cache_stores", "Answers stored.", stats.stores)
        yield CounterMetricFamily("hedgerow_cache_skipped", "Answers not stored because Redis was down.", stats.skipped)
        yield CounterMetricFamily(
            "hedgerow_cache_refused", "Semantic candidates refused by a rule or a report.", stats.refused
        )
        yield CounterMetricFamily(
            "hedgerow_cache_unknown_language", "Lookups in a language that the embedder lacks.", stats.unknown_language
        )
        yield CounterMetricFamily("hedgerow_cache_local_only", "Lookups without Redis.", stats.local)
        yield CounterMetricFamily("hedgerow_cache_fetched", "Evicted entries fetched from Redis.", stats.fetched)
        yield CounterMetricFamily("hedgerow_cache_snapshots", "Snapshots loaded from Redis.", stats.snapshots)
        yield GaugeMetricFamily("hedgerow_cache_entries", "Entries in memory.", len(self._answers.entries))
        yield GaugeMetricFamily("hedgerow_cache_bytes", "Size of the entries in memory.", self._answers.entries.bytes)

    def _of_verdicts(self) -> Iterable[Metric]:
        thresholds = self._answers.verification.thresholds
        measured, tightened = thresholds.measured, self._answers.stats.tightened
        yield CounterMetricFamily(
            "hedgerow_cache_tightened", "Reports of wrong answers that tightened an entry.", tightened
        )
        yield CounterMetricFamily(
            "hedgerow_cache_threshold_alarms", "Thresholds that were too loose.", thresholds.alarms
        )
        yield GaugeMetricFamily(
            "hedgerow_cache_verified", "Verdicts of the judge, of the last 5,000.", measured.samples
        )
        yield GaugeMetricFamily(
            "hedgerow_cache_drifting", "Thresholds whose verdicts are changing.", thresholds.drifting
        )
        shares = GaugeMetricFamily(
            "hedgerow_cache_wrong_share", "Share of lookups that are wrong hits.", labels=["bound"]
        )
        if measured.samples:
            for bound in ("lower", "estimate", "upper"):
                shares.add_metric([bound], getattr(measured, bound))
        yield shares

    def _of_collections(self, collections: Collections) -> Iterable[Metric]:
        stats, prefix = collections.stats, "hedgerow_collection"
        snippets = {"embedded": collections.background.embedded, "kept": stats.kept}
        yield CounterMetricFamily(f"{prefix}_searches", "Searches.", stats.searches)
        yield CounterMetricFamily(f"{prefix}_searches_words_only", "Searches by words alone.", stats.words_only)
        yield CounterMetricFamily(f"{prefix}_searches_empty", "Searches without a hit.", stats.empty)
        yield CounterMetricFamily(f"{prefix}_puts", "Documents put.", stats.puts)
        yield CounterMetricFamily(f"{prefix}_puts_unchanged", "Documents put that were unchanged.", stats.unchanged)
        yield _counter("snippets", "Snippets put, by source of their vectors.", "vector", snippets, prefix)
        yield GaugeMetricFamily(f"{prefix}_snippets_held", "Snippets in memory.", collections.snippets)


def _counter(name: str, help_text: str, label: str, values: dict[str, int], prefix: str = "hedgerow_cache") -> Metric:
    family = CounterMetricFamily(f"{prefix}_{name}", help_text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family
