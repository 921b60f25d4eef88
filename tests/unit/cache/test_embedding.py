"""Embeddings off the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from services.cache.embedding import Embedder
from services.cache.vectors import Vector
from services.runtime.errors import Exhausted, Unavailable


class Gated:
    """An engine that waits for its gate; it is `busy` while it does."""

    name = "gated"
    max_characters = 100

    def __init__(self, max_batch: int = 1) -> None:
        self.max_batch = max_batch
        self.gate, self.busy = threading.Event(), threading.Event()
        self.batches: list[list[str]] = []

    @property
    def embedded(self) -> list[str]:
        return [text for batch in self.batches for text in batch]

    def embed_batch(self, texts: Sequence[str]) -> list[Vector | None]:
        self.batches.append(list(texts))
        self.busy.set()
        self.gate.wait(10)
        if "broken" in texts:
            raise RuntimeError("no")
        return [np.full(1, len(text), np.float32) for text in texts]

    def unseen(self, asked: str, stored: str) -> str:
        return ""


@pytest.fixture
def engine() -> Gated:
    return Gated()


@pytest.fixture
def embedder(engine: Gated) -> Iterator[Embedder]:
    embedder = Embedder(engine, 10_000, 60)
    yield embedder
    engine.gate.set()
    embedder.close()


async def test_texts_that_differ_in_case_and_white_space_are_embedded_once(engine: Gated, embedder: Embedder) -> None:
    engine.gate.set()
    for text in ("Why  not?", " why not?\n", "WHY NOT?"):
        await embedder.embed(text, "acme")
    assert engine.embedded == ["why not?"]
    assert (embedder.hits, embedder.misses) == (2, 1)


async def test_equal_texts_at_the_same_time_are_embedded_once(engine: Gated, embedder: Embedder) -> None:
    async with asyncio.TaskGroup() as tasks:
        for _ in range(5):
            tasks.create_task(embedder.embed("why?", "acme"))
        await asyncio.to_thread(engine.busy.wait, 10)
        engine.gate.set()
    assert engine.embedded == ["why?"]


@pytest.mark.parametrize("again", [False, True])
async def test_a_caller_that_gives_up_leaves_no_work_queued_and_may_ask_again(
    engine: Gated, embedder: Embedder, again: bool
) -> None:
    first = asyncio.create_task(embedder.embed("first", "acme"))
    await asyncio.to_thread(engine.busy.wait, 10)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await embedder.embed("given up", "acme")
    last = asyncio.create_task(embedder.embed("given up" if again else "last", "acme"))
    engine.gate.set()
    assert await last is not None
    await first
    assert engine.embedded == ["first", "given up" if again else "last"]


async def test_a_cancelled_caller_cancels_no_other_embedding(engine: Gated, embedder: Embedder) -> None:
    async with asyncio.TaskGroup() as tasks:
        patient = tasks.create_task(embedder.embed("why?", "acme"))
        hasty = tasks.create_task(embedder.embed("why?", "acme"))
        await asyncio.to_thread(engine.busy.wait, 10)
        hasty.cancel()
        engine.gate.set()
    assert patient.result() is not None
    assert hasty.cancelled()


async def test_a_failure_is_not_remembered(engine: Gated, embedder: Embedder) -> None:
    engine.gate.set()
    for _ in range(2):
        with pytest.raises(RuntimeError):
            await embedder.embed("broken", "acme")
    assert engine.embedded == ["broken", "broken"]


async def test_a_text_that_all_gave_up_while_it_ran_is_remembered(engine: Gated, embedder: Embedder) -> None:
    given_up = asyncio.create_task(embedder.embed("why?", "acme"))
    await asyncio.to_thread(engine.busy.wait, 10)
    given_up.cancel()
    await asyncio.wait([given_up])
    engine.gate.set()
    assert await embedder.embed("why?", "acme") is not None
    assert await embedder.embed("why?", "acme") is not None
    assert engine.embedded == ["why?"]


async def test_texts_that_came_while_the_engine_was_busy_are_embedded_together() -> None:
    engine = Gated(max_batch=3)
    embedder = Embedder(engine, 10_000, 60)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(embedder.embed("a", "acme"))
        await asyncio.to_thread(engine.busy.wait, 10)
        rest = [tasks.create_task(embedder.embed("a" * length, "acme")) for length in range(2, 6)]
        await asyncio.sleep(0)
        engine.gate.set()
    embedder.close()
    assert [int(task.result()[0]) for task in (first, *rest)] == [1, 2, 3, 4, 5]
    assert [len(batch) for batch in engine.batches] == [1, 3, 1]


async def test_closing_refuses_the_texts_that_wait(engine: Gated, embedder: Embedder) -> None:
    first = asyncio.create_task(embedder.embed("first", "acme"))
    await asyncio.to_thread(engine.busy.wait, 10)
    waiting = asyncio.create_task(embedder.embed("waiting", "acme"))
    await asyncio.sleep(0)
    engine.gate.set()
    embedder.close()
    with pytest.raises(Unavailable):
        await waiting
    assert await first is not None
    assert engine.embedded == ["first"]


async def test_the_same_question_of_another_tenant_is_embedded_again(engine: Gated, embedder: Embedder) -> None:
    async with asyncio.TaskGroup() as tasks:
        for tenant in ("acme", "globex"):
            tasks.create_task(embedder.embed("why?", tenant))
        await asyncio.to_thread(engine.busy.wait, 10)
        engine.gate.set()
    await embedder.embed("why?", "initech")
    assert engine.embedded == ["why?"] * 3
    assert embedder.hits == 0


async def test_a_tenants_name_and_its_text_are_kept_apart(engine: Gated, embedder: Embedder) -> None:
    engine.gate.set()
    await embedder.embed("b c", "a")
    await embedder.embed("c", "a b ")
    assert engine.embedded == ["b c", "c"]


async def test_the_memory_is_bounded_in_bytes_and_shared_fairly(engine: Gated, embedder: Embedder) -> None:
    engine.gate.set()
    for number in range(3):
        await embedder.embed(f"theirs {number}", "globex")
    for number in range(100):
        await embedder.embed(f"ours {number}", "acme")
    assert embedder._memory.bytes <= 10_000
    computed = len(engine.embedded)
    for number in range(3):
        await embedder.embed(f"theirs {number}", "globex")
    assert len(engine.embedded) == computed


async def test_an_unused_embedding_is_forgotten_in_time(engine: Gated) -> None:
    now = 0.0
    embedder = Embedder(engine, 10_000, 60, clock=lambda: now)
    engine.gate.set()
    await embedder.embed("asked once", "acme")
    now = 50
    await embedder.embed("asked later", "acme")
    now = 70
    embedder.sweep()
    await embedder.embed("asked later", "acme")
    await embedder.embed("asked once", "acme")
    embedder.close()
    assert engine.embedded == ["asked once", "asked later", "asked once"]


async def test_a_text_too_long_is_not_looked_at(engine: Gated, embedder: Embedder) -> None:
    assert await embedder.embed(" " * 100 + "?", "acme") is None
    assert engine.embedded == []


async def test_tenants_take_turns(engine: Gated, embedder: Embedder) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(50):
            tasks.create_task(embedder.embed(f"flood {number}", "acme"))
        await asyncio.to_thread(engine.busy.wait, 10)
        tasks.create_task(embedder.embed("a question", "globex"))
        await asyncio.sleep(0)
        engine.gate.set()
    assert engine.embedded.index("a question") <= 3


async def test_the_tenant_with_the_most_waiting_texts_gives_way_when_too_many_wait(
    engine: Gated, embedder: Embedder
) -> None:
    flood = [asyncio.create_task(embedder.embed(f"flood {number}", "acme")) for number in range(1_002)]
    await asyncio.to_thread(engine.busy.wait, 10)
    with pytest.raises(Exhausted):
        await embedder.embed("one more", "acme")
    question = asyncio.create_task(embedder.embed("a question", "globex"))
    await asyncio.sleep(0)
    engine.gate.set()
    assert await question is not None
    ended = await asyncio.gather(*flood, return_exceptions=True)
    assert [isinstance(outcome, Exhausted) for outcome in ended] == [False] * 1_001 + [True]
