"""A cache without an embedding model: exact answers, and refusals that say what else is needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hedgerow.cache.v1 import cache_pb2
from hedgerow.collection.v1 import collection_pb2
from hedgerow.tool.v1 import tool_pb2
from services.cache import __main__ as service
from services.cache.answers import Verdict
from services.cache.config import CacheSettings
from services.runtime.errors import Missing, NotSupported
from tests.unit.cache.asking import NEVER
from tests.unit.cache.conftest import identity


@pytest.fixture
async def servicers(tmp_path: Path) -> AsyncIterator[Mapping[str, Any]]:
    settings = CacheSettings(database=str(tmp_path / "cache.db"), embedder="none")
    async with service.assemble(settings) as servicers:
        yield {descriptor.name: servicer for descriptor, servicer in servicers.items()}


async def test_the_same_question_is_a_hit_and_another_wording_is_none(servicers: Mapping[str, Any]) -> None:
    answers = servicers["CacheService"]._answers
    await answers.store(identity("What is the capital of Japan?"), b"Tokyo.", 10_000, NEVER)
    same = await answers.lookup(identity("What is the capital of Japan?"), None, NEVER)
    other = await answers.lookup(identity("what is the capital of japan"), 0.5, NEVER)
    assert (same.verdict, same.entry and same.entry.answer) == (Verdict.EXACT, b"Tokyo.")
    assert (other.verdict, other.similarity) == (Verdict.MISS, None)


async def test_a_collection_is_refused_with_the_extra_that_it_needs(servicers: Mapping[str, Any]) -> None:
    methods = collection_pb2.DESCRIPTOR.services_by_name["CollectionService"].methods
    for method in methods:
        with pytest.raises(NotSupported, match=r"hedgerow\[cache,embedder\]"):
            await getattr(servicers["CollectionService"], method.name)(None, None)
    assert len(methods) > 0


async def test_an_embedding_is_refused_with_the_extra_that_it_needs(servicers: Mapping[str, Any]) -> None:
    with pytest.raises(NotSupported, match=r"hedgerow\[cache,embedder\]"):
        await servicers["CacheService"].Embed(cache_pb2.EmbedRequest(texts=["x"]), None)


async def test_there_is_no_tool_that_searches(servicers: Mapping[str, Any]) -> None:
    tools = servicers["ToolService"]
    assert not (await tools.ListTools(tool_pb2.ListToolsRequest(), None)).tools
    with pytest.raises(Missing, match="there is no search_docs"):
        await tools.CallTool(tool_pb2.CallToolRequest(name="search_docs"), None)
