"""How the cache does with many entries of one partition, through its own memory and its own file.

Their vectors are synthetic (`synthetic.py`), so nothing is embedded but the centres. Times are from the event loop and
back; those of changes are without the disk.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import psutil

from bench.cache import parts, synthetic
from bench.stats import percentiles
from services.cache.config import CacheSettings
from services.cache.embedding import Embedder
from services.cache.engines import DIMENSION, Engine
from services.cache.entries import Entries, Entry
from services.cache.file_store import FileStore
from services.cache.ivf_index import Rows
from services.cache.keyed_question import KeyedQuestion
from services.cache.memory import Memory
from services.cache.semantic_match.thresholds import Thresholds
from services.cache.vectors import Vector, VectorIndex
from services.cache.watch import Watchers

SEARCHES, CHANGES = 1_000, 1_000
NEIGHBOURS, FLOOR = 5, 0.75  # recall is measured on so many nearest, with at least that cosine
_CANDIDATES = 8
_PAUSE_S = 0.1  # between searches while lists are made
_TTL_MS = 24 * 60 * 60 * 1000
_TENANT, _PARTITION, _ANSWER = "bench", b"p" * 32, b"a" * 200
_SEED = 11
Progress = Callable[[str], None]


async def measure(entries: int, progress: Progress) -> dict[str, object]:
    """Figures for so many entries. Half a minute for 100,000; with a million some minutes, 5 GB of memory and 3 GB of
    disk."""
    with tempfile.TemporaryDirectory() as folder:
        room = entries + 2 * CHANGES
        settings = CacheSettings(
            database=str(Path(folder) / "cache.db"), max_entries=room, max_bytes=room * 5_000 + 2**24
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
        self._new = synthetic.beside(some[numbers.integers(0, len(some), CHANGES)], numbers, 0.7, 0.98)

    async def build_and_use(self) -> dict[str, object]:
        before = _resident()
        index, memory = self._memory()
        embedder = Embedder(self._engine, 1, 1)
        async with parts.running(self._settings, self._engine, embedder, memory) as (_, store):
            built_s = await self._build(store)
            waited_s = await self._lists_made(index)
            gc.collect()
            told: dict[str, object] = {
                "build_s": round(built_s, 1),
                "lists_made_after_s": round(waited_s, 1),
                "bytes_per_entry": round((_resident() - before) / self._entries),
            }
            self._progress("cache: searching")
            times, found = await self._search(memory, self._asked)
            told |= {"search_ms": _told(times), "recall": await asyncio.to_thread(self._recall, found)}
            told |= await self._change(memory)
            self._progress(f"cache: {told}")
            return told

    async def restart(self) -> dict[str, object]:
        """From the file, without an embedder: with every vector there before anything is served."""
        self._progress("cache: restarting")
        index, memory = self._memory()
        started = time.perf_counter()
        async with parts.running(self._settings, self._engine, Embedder(self._engine, 1, 1), memory):
            loaded_s = time.perf_counter() - started
            meanwhile: list[float] = []
            await asyncio.sleep(0)
            while _at_work(index):
                meanwhile += (await self._search(memory, self._asked[len(meanwhile) % SEARCHES :][:1]))[0]
                await asyncio.sleep(_PAUSE_S)
            made_s = time.perf_counter() - started - loaded_s
            return {
                "restart_s": round(loaded_s, 1),
                "restart_lists_made_after_s": round(made_s, 1),
                "search_while_lists_are_made_ms": _told(meanwhile) if len(meanwhile) > 1 else None,
            }

    def _memory(self) -> tuple[VectorIndex, Memory]:
        index, settings = VectorIndex(DIMENSION), self._settings
        entries = Entries(settings.entries, settings.max_bytes, settings.stale_ms)
        thresholds = Thresholds(settings.similarity_threshold, settings.max_wrong)
        return index, Memory(entries, index, Watchers(settings.watch_queue), thresholds)

    async def _build(self, store: FileStore) -> float:
        """Seconds to store all of them, in the file too, without those it takes to draw their vectors."""
        number, spent_s = 0, 0.0
        for rows in synthetic.entries(self._around, self._entries):
            started = time.perf_counter()
            some = [(_entry(number + place), synthetic.vector(row)) for place, row in enumerate(rows)]
            await asyncio.gather(*(store.insert(entry, row, store.sequence) for entry, row in some))
            spent_s += time.perf_counter() - started
            number += len(rows)
            if number % max(synthetic.AT_ONCE, self._entries // 10) == 0:
                self._progress(f"cache: stored {number:,} of {self._entries:,}, {spent_s:.0f} s")
        return spent_s

    async def _lists_made(self, index: VectorIndex) -> float:
        started = time.perf_counter()
        while _at_work(index):
            await asyncio.sleep(0.05)
        return time.perf_counter() - started

    async def _search(self, memory: Memory, asked: Rows) -> tuple[list[float], list[Sequence[str]]]:
        """Milliseconds of each search, and the keys that it found."""
        times: list[float] = []
        found: list[Sequence[str]] = []
        for row in asked:
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

    async def _change(self, memory: Memory) -> dict[str, object]:
        self._progress("cache: inserting under searches")
        numbers = range(self._entries, self._entries + CHANGES)
        inserting = asyncio.create_task(_each(memory, (partial(memory.put, *each) for each in self._changes(numbers))))
        while not inserting.done():
            await self._search(memory, self._asked[:20])
        return {"insert_under_search_ms": _told(await inserting)}

    def _changes(self, numbers: Iterable[int]) -> list[tuple[Entry, Vector]]:
        return [(_entry(number), synthetic.vector(row)) for number, row in zip(numbers, self._new, strict=True)]


async def _each(memory: Memory, changes: Iterable[Callable[[], object]]) -> list[float]:
    """Milliseconds until each change is in the index."""
    times = []
    for change in changes:
        started = time.perf_counter()
        change()
        await memory.settled()
        times.append((time.perf_counter() - started) * 1000)
    return times


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


def _told(times: Sequence[float]) -> Mapping[str, float]:
    return percentiles(times, 2)


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)
