"""Private questions in four languages, by HTTP: a real gateway, a real cache with its embedder, a scripted model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from hedgerow.cache.v1 import cache_pb2
from hedgerow.cache.v1.cache_pb2_grpc import CacheServiceStub
from hedgerow.channel import open_channel
from tests.conftest import Start
from tests.fault.mesh import PATIENT_LOOKUPS
from tests.integration.http_gateway import HttpGateway, start_http_gateway
from tests.integration.scripted_llm import ScriptedLlm, end, words
from tests.keys import digest
from tests.waiting import until

TENANTS = {"shared": {"keys": [digest("shared")], "hits": {"others": "any", "personal": "any"}}}
# Each with the same in nearly the same words, which an embedder of English puts near it in every language.
PRIVATE = {
    "en": ("What is the balance of my account?", "What is my account balance?"),
    "de": ("Wie hoch ist der Stand von meinem Konto?", "Wie hoch ist bitte der Stand von meinem Konto?"),
    "es": ("¿Cuál es el saldo de mi cuenta?", "¿Cuál es el saldo de mi cuenta, por favor?"),
    "ja": ("私の口座の残高はいくらですか？", "私の口座の残高はいくらですか。"),
}
Asked = dict[str, Any]


@pytest.fixture
async def cache(start: Start, model_cache: Path, tmp_path: Path) -> str:
    """The address of a cache."""
    process = await start("cache", database=str(tmp_path / "cache.db"), model_cache=str(model_cache))
    return process.spec.address


@pytest.fixture
async def gateway(start: Start, llm: ScriptedLlm, cache: str) -> HttpGateway:
    llm.script = [*words("Twelve euros."), end()]
    settings = {"cache_address": cache, "tenants": json.dumps(TENANTS)}
    return await start_http_gateway(start, llm, stages=json.dumps(PATIENT_LOOKUPS), **settings)


async def asked(gateway: HttpGateway, question: str, user: str) -> Asked:
    """The report's part on the cache."""
    body = {"model": "m", "messages": [{"role": "user", "content": question}], "user": user}
    body["hedgerow"] = {"min_similarity": 0.6}
    async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as http:
        reply = await http.post("/v1/chat/completions", json=body, headers={"authorization": "Bearer shared"})
    assert reply.status_code == 200, reply.text
    return dict(reply.json()["hedgerow"]["cache"])


async def stored(cache: str) -> int:
    """How many answers the cache has stored, and can compare with."""
    async with open_channel(cache) as channel:
        return int((await CacheServiceStub(channel).GetStats(cache_pb2.GetStatsRequest())).stores)


async def test_a_question_is_compared_with_others_only_in_the_language_of_the_embedder(
    gateway: HttpGateway, cache: str
) -> None:
    for language, (first, alike) in PRIVATE.items():
        before = await stored(cache)
        assert (await asked(gateway, first, "anna"))["verdict"] == "miss", language
        await until(lambda first=first: asked(gateway, first, "anna"), holds=lambda got: got["verdict"] == "exact")
        await until(lambda: stored(cache), holds=lambda number, before=before: number > before)
        got = await asked(gateway, alike, "bert")
        found = (got["verdict"], got.get("reason"))
        assert found == (("semantic", None) if language == "en" else ("miss", "language")), language
        assert ("similarity" in got) is (language == "en")
        assert (await asked(gateway, first, "bert"))["verdict"] == "exact", language
