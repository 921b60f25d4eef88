"""Stored answers of one end user, by HTTP and gRPC: a real gateway and cache, a scripted model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from hedgerow import AsyncClient
from tests.conftest import Start
from tests.fault.mesh import PATIENT_LOOKUPS
from tests.integration.http_gateway import HttpGateway, start_http_gateway
from tests.integration.scripted_llm import ScriptedLlm, end, words
from tests.keys import digest
from tests.waiting import until

CAPITAL, ALIKE = "What is the capital of France?", "Tell me the capital of France."
TENANTS = {
    "acme": {"keys": [digest("secret")], "hits": {"scope": "user", "others": "any"}},
    "umbra": {"keys": [digest("test")], "hits": {"scope": "user", "others": "any"}},
}


async def start_all(start: Start, llm: ScriptedLlm, model_cache: Path, tmp_path: Path, **settings: str) -> HttpGateway:
    """The gateway, with a cache behind it."""
    llm.script = [*words("Paris."), end()]
    cache = await start("cache", database=str(tmp_path / "cache.db"), model_cache=str(model_cache))
    tenants = json.dumps(TENANTS)
    settings |= {"cache_address": cache.spec.address, "tenants": tenants, "stages": json.dumps(PATIENT_LOOKUPS)}
    return await start_http_gateway(start, llm, **settings)


async def test_a_stored_answer_is_for_its_end_user_alone_and_all_go_with_their_tenant(
    start: Start, llm: ScriptedLlm, model_cache: Path, tmp_path: Path
) -> None:
    gateway = await start_all(start, llm, model_cache, tmp_path, l1_cache_entries="0")
    async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as http:

        async def asked(question: str, key: str = "secret", **body: Any) -> dict[str, Any]:
            said = {"model": "m", "messages": [{"role": "user", "content": question}], **body}
            reply = await http.post("/v1/chat/completions", json=said, headers={"authorization": f"Bearer {key}"})
            assert reply.status_code == 200, reply.text
            return dict(reply.json()["hedgerow"]["cache"])

        async def verdict(question: str, key: str = "secret", **body: Any) -> str:
            return str((await asked(question, key, **body))["verdict"])

        assert await asked(CAPITAL) == {"verdict": "bypass", "reason": "no_user"}
        for name in ("anna", "bert"):
            assert await verdict(CAPITAL, user=name) == "miss"
            await until(lambda name=name: verdict(CAPITAL, user=name), holds=lambda value: value == "exact")
        near = {"min_similarity": 0.6}
        assert await verdict(ALIKE, user="carl", hedgerow=near) == "miss"
        assert await verdict(ALIKE, hedgerow={**near, "end_user": "dora"}) == "miss"
        assert await verdict(ALIKE, user="anna", hedgerow=near) == "semantic"
        assert await verdict(CAPITAL, user="anna", safety_identifier="x") == "miss"
        assert await verdict(CAPITAL, safety_identifier="anna") == "exact", "the same end users, named by another field"
        assert await verdict(CAPITAL, key="test", user="anna") == "miss"
        await until(lambda: verdict(CAPITAL, key="test", user="anna"), holds=lambda value: value == "exact")
        assert await asked(CAPITAL) == {"verdict": "bypass", "reason": "no_user"}

        removed = await http.request("DELETE", "/v1/cache", headers={"authorization": "Bearer secret"})
        assert removed.json()["removed"] >= 3, "entries of all end users are removed"
        assert await verdict(CAPITAL, key="test", user="anna") == "exact", "another tenant's entries stay"
        for name in ("anna", "bert"):
            assert await verdict(CAPITAL, user=name) == "miss", name


async def test_an_anthropic_client_and_the_sdk_name_the_same_end_user(
    start: Start, llm: ScriptedLlm, model_cache: Path, tmp_path: Path
) -> None:
    gateway = await start_all(start, llm, model_cache, tmp_path)
    target = gateway.process.spec.address
    async with (
        AsyncClient(target, api_key="secret") as client,
        httpx.AsyncClient(base_url=gateway.url, timeout=20) as http,
    ):

        async def verdict_of(name: str) -> str:
            asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": CAPITAL}]}
            body = {**asked, "metadata": {"user_id": name}}
            reply = await http.post("/v1/messages", json=body, headers={"x-api-key": "secret"}, timeout=20)
            return str(reply.json()["hedgerow"]["cache"]["verdict"])

        assert await verdict_of("anna") == "miss"
        await until(lambda: verdict_of("anna"), holds=lambda verdict: verdict == "exact")
        own = await client.ask(CAPITAL, model="m", max_tokens=9, end_user="anna")
        assert (own.text, own.cache.verdict) == ("Paris.", "exact")
        assert (await client.ask(CAPITAL, model="m", max_tokens=9, end_user="bert")).cache.verdict == "miss"
        assert (await client.ask(CAPITAL, model="m", max_tokens=9)).cache.reason == "no_user"
