"""How long a search takes in a large collection: drawn text and drawn vectors, in this process, without any network."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from bench.retrieval.questions import pages, questions
from bench.stats import percentiles
from services.cache.collections.documents import Cut, Ranking, Snippet
from services.cache.collections.file import CollectionFile
from services.cache.collections.reading import Reader
from services.cache.collections.settings import CollectionSettings
from services.cache.collections.writing import Writer
from services.cache.engines import DIMENSION
from services.cache.vectors import Vector, scan_on_one_core

SNIPPETS, WORDS = 100_000, 80
_IN_DOCUMENT = 100
_TENANT, _NAME, _ENGINE = "local", "large", "drawn"
_SEED = 7


def measure() -> dict[str, object]:
    """Milliseconds of a search, by what it goes by, and what 100,000 snippets take. About a minute."""
    scan_on_one_core()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.db"
        file = CollectionFile(str(path), DIMENSION)
        try:
            started = time.perf_counter()
            _fill(file)
            filled_s = time.perf_counter() - started
            times = _search(Reader(file, _ENGINE))
        finally:
            file.close()
        return {
            "snippets": SNIPPETS,
            "fill_s": round(filled_s, 1),
            "disk_mb": round(sum(each.stat().st_size for each in path.parent.iterdir()) / 1e6),
            "load_s": _load_s(path),
            "search_ms": {ranking.value: percentiles(times[ranking]) for ranking in Ranking},
        }


def _fill(file: CollectionFile) -> None:
    writer = Writer(file, CollectionSettings(), _ENGINE, lambda: 0)
    generator = np.random.default_rng(_SEED)
    drawn = _texts()
    for number in range(SNIPPETS // _IN_DOCUMENT):
        texts = list(islice(drawn, _IN_DOCUMENT))
        vectors = generator.standard_normal((len(texts), DIMENSION)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        snippets = tuple(Snippet("", text, "") for text in texts)
        cut = Cut(f"{number}", "", b"", sum(map(len, texts)), snippets, tuple(vectors))
        writer.put(_TENANT, _NAME, cut, "", writer.before(_TENANT, _NAME, "", b"", "").collection)


def _texts() -> Iterator[str]:
    """Runs of words from the project's own pages."""
    words, drawn = " ".join(pages().values()).split(), random.Random(_SEED)
    for _ in range(SNIPPETS):
        start = drawn.randrange(len(words) - WORDS)
        yield " ".join(words[start : start + WORDS])


def _search(reader: Reader) -> dict[Ranking, list[float]]:
    times: dict[Ranking, list[float]] = {ranking: [] for ranking in Ranking}
    generator = np.random.default_rng(_SEED + 1)
    for question in questions():
        vector: Vector = generator.standard_normal(DIMENSION).astype(np.float32)
        vector /= np.linalg.norm(vector)
        for ranking in Ranking:
            given = None if ranking is Ranking.WORDS else vector
            started = time.perf_counter()
            reader.search(_TENANT, _NAME, question.text, given, ranking, 5)
            times[ranking].append((time.perf_counter() - started) * 1000)
    return times


def _load_s(path: Path) -> float:
    started = time.perf_counter()
    file = CollectionFile(str(path), DIMENSION)
    file.load(_ENGINE)
    file.close()
    return round(time.perf_counter() - started, 2)
