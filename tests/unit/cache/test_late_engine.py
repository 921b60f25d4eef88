"""An embedding model that is loaded by the first request that needs it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest

from services.cache.conversion import NoModel, packaged
from services.cache.embedding import Embedder
from services.cache.engines import CTranslate2Engine, Engine, LateEngine, load
from services.cache.first_use import FirstUse
from services.runtime.deadline import Deadline
from services.runtime.errors import NotSupported, ServiceError, Unavailable
from tests.unit.cache.conftest import BagOfWords, OpenCache, identity


class Loading:
    """Counts how often an engine is loaded."""

    def __init__(self, problem: Exception | None = None):
        self.times, self.problem = 0, problem

    def __call__(self) -> Engine:
        self.times += 1
        if self.problem:
            raise self.problem
        return BagOfWords()


def test_properties_of_a_late_engine_are_known_before_it_is_loaded() -> None:
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


def test_callers_get_no_folder_of_this_machine(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(NotSupported) as caught:
        LateEngine("ctranslate2", 128, lambda: load("ctranslate2", tmp_path, 128, tmp_path)).length("a")
    assert caught.value.message == "model: its folder has no model.bin, tokenizer.json"
    assert f"model: {tmp_path} has no model.bin" in caplog.text


@pytest.mark.parametrize("broken", ["tokenizer", "model", "cache"])
def test_a_model_that_cannot_be_loaded_is_unavailable(
    broken: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = None if broken == "cache" else tmp_path
    (tmp_path / "model.bin").write_bytes(b"broken")
    (tmp_path / "tokenizer.json").write_bytes(
        b"{}" if broken == "tokenizer" else (packaged() / "tokenizer.json").read_bytes()
    )
    late = LateEngine("ctranslate2", 128, lambda: load("ctranslate2", tmp_path / "model.bin" / "cache", 128, model))
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"^the embedding model cannot be loaded$") as caught:
            late.embed_batch(["a"])
        assert caught.value.retry_delay_s
    (logged,) = caplog.records
    assert logged.exc_info, "the log has the cause"


@pytest.mark.parametrize("problem", [NoModel("none"), RuntimeError("broken")])
def test_a_failed_load_is_kept_for_a_while_and_then_tried_again(problem: Exception) -> None:
    loading, now = Loading(problem), [100.0]
    needed = FirstUse("it", loading, lambda: now[0])
    errors = []
    for now[0] in (100.0, 101.0, 109.0):
        with pytest.raises(ServiceError) as caught:
            needed()
        errors.append(caught.value)
    assert loading.times == 1
    assert len({id(error.metadata) for error in errors}) == 3, (
        "each error has its own metadata, because handlers write into it"
    )
    assert not needed.is_loaded
    loading.problem, now[0] = None, 110.0
    assert needed() is needed()
    assert (loading.times, needed.is_loaded) == (2, True)


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
