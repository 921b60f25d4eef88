"""A cache with a clock that stands still and an engine that needs no model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from services.cache.answers import Answers
from services.cache.database import Database
from services.cache.embedding import Embedder
from services.cache.encryption import Encryption
from services.cache.entries import Entries
from services.cache.file_store import FileStore
from services.cache.keyed_question import KeyedQuestion, keyed
from services.cache.memory import Memory
from services.cache.semantic_match.thresholds import Thresholds
from services.cache.semantic_match.verification import Verification
from services.cache.vectors import Vector, VectorIndex
from services.cache.watch import Watchers

DIMENSION = 64


class BagOfWords:
    """An engine whose vectors count words: texts that share more words are nearer."""

    name = "bag of words"
    max_batch = 1
    max_characters = 10_000

    def __init__(self) -> None:
        self.embedded: list[str] = []

    def embed_batch(self, texts: Sequence[str]) -> list[Vector | None]:
        return [self._embed(text) for text in texts]

    def length(self, text: str) -> int:
        return len(text.split())

    def unseen(self, asked: str, stored: str) -> str:
        return ""

    def _embed(self, text: str) -> Vector | None:
        self.embedded.append(text)
        words = text.split()
        if len(words) > 50:
            return None
        vector = np.zeros(DIMENSION, np.float32)
        for word in words:
            vector[sum(word.encode()) % DIMENSION] += 1
        return vector / np.linalg.norm(vector)


@dataclass
class Clock:
    """Unix time in milliseconds, moved by hand."""

    ms: int = 1_000_000

    def __call__(self) -> int:
        return self.ms


@dataclass
class Bench:
    """A running cache and its parts."""

    answers: Answers
    engine: BagOfWords
    clock: Clock
    database: Database
    store: FileStore
    running: asyncio.Task[None]
    reopen: OpenCache

    async def restarted(self, **changes: Any) -> Bench:
        """A new process in place of this one: the same file, clock and limits but for `changes`."""
        await self.close()
        return self.reopen(**changes)

    async def close(self) -> None:
        if not self.running.cancelled():
            self.running.cancel()
            await asyncio.wait([self.running])
            await self.store.close()
            self.answers.close()


OpenCache = Callable[..., Bench]


@pytest.fixture
async def open_cache() -> AsyncIterator[OpenCache]:
    """Opens caches, and closes them after the test."""
    opened: list[Bench] = []

    def open_cache(
        path: str | Path = "",
        *,
        keys: Sequence[bytes] = (),
        clock: Clock | None = None,
        max_entries: int = 100,
        max_bytes: int = 10**7,
        watch_queue: int = 8,
        stale_ms: int = 0,
        verification: Verification | None = None,
        unknown: Callable[[str], str] = lambda text: "",
    ) -> Bench:
        database, clock, engine = Database(str(path), Encryption(keys)), clock or Clock(), BagOfWords()
        reopen = partial(
            open_cache, path, keys=keys, clock=clock, max_entries=max_entries, max_bytes=max_bytes, stale_ms=stale_ms
        )
        verification = verification or Verification(Thresholds(0.95, max_wrong=0.01))
        held = memory(max_entries, max_bytes, stale_ms, watch_queue=watch_queue, thresholds=verification.thresholds)
        store = FileStore(database, held, engine.name, stale_ms, 10**6, clock)
        answers = Answers(held, store, Embedder(engine, 10**6, 60), engine.unseen, unknown, verification, clock)
        held.load(database.load(engine.name, clock() - stale_ms), clock())
        bench = Bench(answers, engine, clock, database, store, asyncio.create_task(store.run()), reopen)
        opened.append(bench)
        return bench

    yield open_cache
    for bench in opened:
        await bench.close()


def memory(
    max_entries: int = 100,
    max_bytes: int = 10**7,
    stale_ms: int = 0,
    *,
    index: VectorIndex | None = None,
    watch_queue: int = 1_000,
    thresholds: Thresholds | None = None,
) -> Memory:
    """A memory that finds similar questions, to be closed."""
    entries, thresholds = Entries(max_entries, max_bytes, stale_ms), thresholds or Thresholds(0.95, max_wrong=0.01)
    vectors = VectorIndex(DIMENSION) if index is None else index
    return Memory(entries, vectors, Watchers(watch_queue), thresholds)


def question(text: str, tenant: str = "acme", **fields: object) -> cache_pb2.Question:
    """A question of one turn."""
    message = chat_pb2.Message(role=chat_pb2.ROLE_USER, content=text)
    return cache_pb2.Question(tenant=tenant, model_class="fast", messages=[message], **fields)


def identity(text: str, tenant: str = "acme", **fields: object) -> KeyedQuestion:
    return keyed(question(text, tenant, **fields))
