"""How the cache does with many entries of one partition, through its own memory and its own file.

Their vectors are synthetic (`synthetic.py`), so nothing is embedded but the centres. Times are from the event loop and
back.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import psutil

from bench.cache import parts, synthetic
from bench.stats import percentiles
from services.cache.config import CacheSettings
from services.cache.embedding import Embedder
from services.cache.engines import DIMENSION, Engine
from services.cache.entries import Entry
from services.cache.file_store import FileStore
from services.cache.ivf_index import Rows
from services.cache.keyed_question import KeyedQuestion
from services.cache.memory import Memory
from services.cache.vectors import VectorIndex

SEARCHES = 1_000
NEIGHBOURS, FLOOR = 5, 0.75  # recall is measured on so many nearest, with at least that cosine
_CANDIDATES = 8
_TTL_MS = 24 * 60 * 60 * 1000
_TENANT, _PARTITION, _ANSWER = "bench", b"p" * 32, b"a" * 200
_SEED = 11
Progress = Callable[[str], None]


async def measure(entries: int, progress: Progress) -> dict[str, object]:
    """Figures for so many entries. Half a minute for 100,000; with a million some minutes, 5 GB of memory and 3 GB of
    disk."""
    with tempfile.TemporaryDirectory() as folder:
        settings = CacheSettings(
            database=str(Path(folder) / "cache.db"), max_entries=entries, max_bytes=entries * 5_000 + 2**24
        )
        engine = await asyncio.to_thread(parts.load, settings)
        progress(f"cache: embedding {synthetic.QUESTIONS} generated questions")
        around = await asyncio.to_thread(synthetic.centres, engine)
        bench = _Scale(entries, around, settings, engine, progress)
        first = await bench.build_and_use()
        gc.collect()
        return {"entries": entries, "vectors": "synthetic", **first, **await bench.restart()}


class _Scale:
    def __init__(self, entries: int, around: Rows, settings: CacheSettings, engine: Engine, progress: Progress):
        self._entries, self._around, self._settings, self._engine = entries, around, settings, engine
        self._progress = progress
        numbers = np.random.default_rng(_SEED)
        some = next(synthetic.entries(around, min(entries, synthetic.AT_ONCE)))
        self._asked = synthetic.beside(some[numbers.integers(0, len(some), SEARCHES)], numbers, 0.78, 0.99)

    async def build_and_use(self) -> dict[str, object]:
        before = _resident()
        index, memory = self._memory()
        embedder = Embedder(self._engine, 1, 1)
        async with parts.running(self._settings, self._engine, embedder, memory) as (_, store):
            await self._build(store)
            await self._lists_made(index)
            gc.collect()
            entry_bytes = round((_resident() - before) / self._entries)
            self._progress("cache: searching")
            times, found = await self._search(memory)
            recall = await asyncio.to_thread(self._recall, found)
            return {"bytes_per_entry": entry_bytes, "search_ms": percentiles(times, 2), "recall": recall}

    async def restart(self) -> dict[str, object]:
        """From the file, without an embedder: with every vector there before anything is served."""
        self._progress("cache: restarting")
        index, memory = self._memory()
        started = time.perf_counter()
        async with parts.running(self._settings, self._engine, Embedder(self._engine, 1, 1), memory):
            loaded_s = time.perf_counter() - started
            await asyncio.sleep(0)
            made_s = await self._lists_made(index)
            return {"restart_s": round(loaded_s, 1), "restart_lists_made_after_s": round(made_s, 1)}

    def _memory(self) -> tuple[VectorIndex, Memory]:
        index = VectorIndex(DIMENSION)
        return index, parts.make_memory(self._settings, index)

    async def _build(self, store: FileStore) -> None:
        """Store all of them, in the file too."""
        number = 0
        for rows in synthetic.entries(self._around, self._entries):
            some = [(_entry(number + place), synthetic.vector(row)) for place, row in enumerate(rows)]
            await asyncio.gather(*(store.insert(entry, row, store.sequence) for entry, row in some))
            number += len(rows)
            if number % max(synthetic.AT_ONCE, self._entries // 10) == 0:
                self._progress(f"cache: stored {number:,} of {self._entries:,}")

    async def _lists_made(self, index: VectorIndex) -> float:
        started = time.perf_counter()
        while _at_work(index):
            await asyncio.sleep(0.05)
        return time.perf_counter() - started

    async def _search(self, memory: Memory) -> tuple[list[float], list[Sequence[str]]]:
        """Milliseconds of each search, and the keys that it found."""
        times: list[float] = []
        found: list[Sequence[str]] = []
        for row in self._asked:
            started = time.perf_counter()
            near = await memory.nearest(_QUESTION, row, _CANDIDATES)
            times.append((time.perf_counter() - started) * 1000)
            found.append([key for key, _ in near])
        return times, found

    def _recall(self, found: Sequence[Sequence[str]]) -> dict[str, object]:
        self._progress("cache: comparing with every vector")
        true = synthetic.nearest(self._around, self._entries, self._asked, NEIGHBOURS, FLOOR)
        right = sum(len({_key(each) for each in near} & set(keys)) for near, keys in zip(true, found, strict=True))
        return {
            f"at_{NEIGHBOURS}_above_{FLOOR}": round(right / max(1, sum(map(len, true))), 4),
            "of": sum(map(len, true)),
        }


_QUESTION = KeyedQuestion(_TENANT, "", _PARTITION, "")


def _entry(number: int) -> Entry:
    now_ms = parts.now_ms()
    asked = f"what was question number {number} of all that were drawn".encode()
    return Entry(_key(number), _TENANT, _PARTITION, asked, _ANSWER, now_ms + _TTL_MS, now_ms)


def _key(number: int) -> str:
    return f"{number:064x}"


def _at_work(index: VectorIndex) -> bool:
    partition = index.partition(_PARTITION)
    return partition is not None and (partition.rebuilding or partition.due)


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)
