"""The bench's process that looks questions up in GPTCache, without the packages it needs and without an order."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.cache import gptcache

pytestmark = pytest.mark.timeout(60)


async def test_a_process_that_breaks_off_is_told_with_its_last_words() -> None:
    order = {"folder": "/nowhere", "model": "/nowhere", "max_tokens": 128, "stored": ["a"], "asked": ["b"]}
    for given, why in ((order, "No module named 'gptcache'"), ({}, "KeyError|No module named")):
        with pytest.raises(gptcache.GptCacheFailed, match=why):
            await gptcache._ran(Path(sys.executable), given, lambda line: None)


def test_its_environment_has_the_cache_s_own_engine_and_all_that_gptcache_would_fetch_while_it_runs() -> None:
    listed = [line.partition("==")[0] for line in gptcache.requirements().splitlines()]
    assert listed == ["gptcache", "sqlalchemy", "faiss-cpu", "ctranslate2", "tokenizers", "numpy"]
