"""An embedding model that is loaded by the first request that needs it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import pytest

from services.cache.conversion import NoModel
from services.cache.embedding import Embedder
from services.cache.engines import CTranslate2Engine, Engine, LateEngine
from services.runtime.deadline import Deadline
from services.runtime.errors import NotSupported
from tests.unit.cache.conftest import BagOfWords, OpenCache, identity


class Loading:
    """Counts how often an engine is loaded."""

    def __init__(self, problem: Exception | None = None):
        self.times, self._problem = 0, problem

    def __call__(self) -> Engine:
        self.times += 1
        if self._problem:
            raise self._problem
        return BagOfWords()


def test_what_is_asked_of_an_engine_before_a_text_comes_is_known_without_it() -> None:
    loading = Loading()
    late = LateEngine("ctranslate2", 128, loading)
    assert (late.name, late.languages, late.max_batch) == (CTranslate2Engine.name, CTranslate2Engine.languages, 1)
    assert (late.max_characters, loading.times) == (2_048, 0)


def test_threads_that_need_it_at_once_load_it_once() -> None:
    loading, together = Loading(), Barrier(4)
    late = LateEngine("ctranslate2", 128, loading)

    def embed() -> object:
        together.wait(10)
        return late.embed_batch(["a"])

    with ThreadPoolExecutor(4) as threads:
        made = [each.result(10) for each in [threads.submit(embed) for _ in range(4)]]
    assert loading.times == 1
    assert len(made) == 4


async def test_a_model_that_is_not_there_is_a_typed_error_for_each_request() -> None:
    embedder = Embedder(LateEngine("ctranslate2", 128, Loading(NoModel("model: pip install it"))), 10**6, 60)
    try:
        for text in ("one", "two"):
            with pytest.raises(NotSupported, match="pip install it"):
                await embedder.embed(text, "acme")
    finally:
        embedder.close()


async def test_languages_are_ready_before_a_question_is_compared_and_not_for_equal_ones(open_cache: OpenCache) -> None:
    answers, loaded = open_cache().answers, list[str]()

    async def ready() -> None:
        loaded.append("languages")

    answers._ready = ready
    store = partial(answers.store, answer=b"Paris.", ttl_ms=10_000, deadline=Deadline.never())
    await store(identity("what is the capital of france", exact_only=True))
    await answers.lookup(identity("what is the capital of france"), 1, Deadline.never())
    assert loaded == []
    await answers.lookup(identity("what is the capital of spain"), 0.5, Deadline.never())
    assert loaded == ["languages"]
    await asyncio.sleep(0)
