"""Embeddings off the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from services.cache.embedding import Embedder
from services.cache.vectors import Vector


class Gated:
    """An engine that waits for its gate; it is `busy` while it does."""

    name = "gated"

    def __init__(self) -> None:
        self.gate, self.busy = threading.Event(), threading.Event()
        self.embedded: list[str] = []

    def embed(self, text: str) -> Vector | None:
        self.embedded.append(text)
        self.busy.set()
        self.gate.wait(10)
        if text == "broken":
            raise RuntimeError("no")
        return np.ones(1, np.float32)


@pytest.fixture
def engine() -> Gated:
    return Gated()


@pytest.fixture
def embedder(engine: Gated) -> Iterator[Embedder]:
    embedder = Embedder(engine, 10)
    yield embedder
    engine.gate.set()
    embedder.close()


async def test_texts_that_differ_in_case_and_white_space_are_embedded_once(engine: Gated, embedder: Embedder) -> None:
    engine.gate.set()
    for text in ("Why  not?", " why not?\n", "WHY NOT?"):
        await embedder.embed(text)
    assert engine.embedded == ["why not?"]
    assert (embedder.hits, embedder.misses) == (2, 1)


async def test_equal_texts_at_the_same_time_are_embedded_once(engine: Gated, embedder: Embedder) -> None:
    async with asyncio.TaskGroup() as tasks:
        for _ in range(5):
            tasks.create_task(embedder.embed("why?"))
        await asyncio.to_thread(engine.busy.wait, 10)
        engine.gate.set()
    assert engine.embedded == ["why?"]


async def test_a_caller_that_gives_up_leaves_no_work_queued(engine: Gated, embedder: Embedder) -> None:
    first = asyncio.create_task(embedder.embed("first"))
    await asyncio.to_thread(engine.busy.wait, 10)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await embedder.embed("given up")
    engine.gate.set()
    await first
    await embedder.embed("last")
    assert engine.embedded == ["first", "last"]


async def test_one_caller_that_gives_up_does_not_take_the_others_with_it(engine: Gated, embedder: Embedder) -> None:
    async with asyncio.TaskGroup() as tasks:
        patient = tasks.create_task(embedder.embed("why?"))
        hasty = tasks.create_task(embedder.embed("why?"))
        await asyncio.to_thread(engine.busy.wait, 10)
        hasty.cancel()
        engine.gate.set()
    assert patient.result() is not None
    assert hasty.cancelled()


async def test_a_text_given_up_can_be_asked_for_again_at_once(engine: Gated, embedder: Embedder) -> None:
    first = asyncio.create_task(embedder.embed("first"))
    await asyncio.to_thread(engine.busy.wait, 10)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await embedder.embed("again")
    again = asyncio.create_task(embedder.embed("again"))
    engine.gate.set()
    assert await again is not None
    await first


async def test_a_failure_is_not_remembered(engine: Gated, embedder: Embedder) -> None:
    engine.gate.set()
    for _ in range(2):
        with pytest.raises(RuntimeError):
            await embedder.embed("broken")
    assert engine.embedded == ["broken", "broken"]
