"""Which questions the cache answers, by gRPC and HTTP: a real gateway and cache, a scripted model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError

from hedgerow import Answer, AsyncClient, InvalidArgument
from tests.conftest import Start
from tests.fault.mesh import PATIENT_LOOKUPS
from tests.integration.http_gateway import start_http_gateway
from tests.integration.scripted_llm import ScriptedLlm, end, words
from tests.keys import digest
from tests.waiting import until

TODAY, ALIKE = "What is the weather in Oslo today?", "Tell me, what is the weather in Oslo today?"
PATIENT = json.dumps(PATIENT_LOOKUPS)
PRICE = "What is the price of a ticket to Bergen?"
TENANTS = {
    "acme": {
        "keys": [digest("secret")],
        "hits": {"time_bound": "exact", "categories": {"prices": {"words": ["price*"], "ttl_ms": 60_000}}},
    },
    "umbra": {"keys": [digest("test")]},
}


async def test_cached_answers_of_one_tenant_reveal_nothing_of_another(
    start: Start, llm: ScriptedLlm, model_cache: Path, tmp_path: Path
) -> None:
    llm.script = [*words("It rains."), end()]
    cache = await start("cache", database=str(tmp_path / "cache.db"), model_cache=str(model_cache))
    settings = {"cache_address": cache.spec.address, "tenants": json.dumps(TENANTS), "stages": PATIENT}
    gateway = await start_http_gateway(start, llm, **settings)
    target = gateway.process.spec.address

    async with AsyncClient(target, api_key="secret") as acme, AsyncClient(target, api_key="test") as umbra:

        async def seen(client: AsyncClient, question: str, **options: Any) -> tuple[str, str, str]:
            cache_ = (await client.ask(question, model="m", min_similarity=0.6, **options)).cache
            return cache_.verdict, cache_.reason, cache_.category

        async def hit() -> Answer:
            return await acme.ask(TODAY, model="m")

        assert (await seen(acme, TODAY))[:2] == ("miss", "time_bound")
        await until(hit, holds=lambda answer: answer.cache.verdict == "exact")
        assert await seen(acme, ALIKE) == ("miss", "time_bound", "")  # never a semantic hit of what is for exact ones
        assert (await seen(acme, ALIKE, cache_allow=["time_bound"]))[:2] == ("miss", "")
        assert await seen(acme, PRICE) == ("miss", "", "prices")
        assert await seen(acme, "The rain, please.", cache_category="prices") == ("miss", "", "prices")

        for _ in range(2):
            assert await seen(umbra, TODAY) == ("bypass", "time_bound", "")
        assert (await seen(umbra, PRICE))[2] == ""
        with pytest.raises(InvalidArgument, match=r"cache\.category: one of none is set, got prices"):
            await seen(umbra, TODAY, cache_category="prices")
        with pytest.raises(InvalidArgument, match=r"cache\.category: one of prices, got fares"):
            await seen(acme, TODAY, cache_category="fares")

    async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="test", max_retries=0) as openai_:

        async def asked(question: str, **options: Any) -> dict[str, Any]:
            messages: Any = [{"role": "user", "content": question}]
            answer = await openai_.chat.completions.create(model="m", messages=messages, **options)
            return (answer.model_extra or {})["hedgerow"]["cache"]

        assert await asked(TODAY) == {"verdict": "bypass", "reason": "time_bound"}
        assert await asked("Draw lots.", temperature=0.9) == {"verdict": "bypass", "reason": "sampled"}
        allowed = {"extra_body": {"hedgerow": {"cache_allow": ["time_bound", "sampled"]}}, "temperature": 0.9}
        assert (await asked(TODAY, **allowed))["verdict"] == "miss"
        header = {"extra_headers": {"x-hedgerow-cache-allow": "time_bound, sampled"}, "temperature": 0.9}
        await until(lambda: asked(TODAY, **header), holds=lambda report: report["verdict"] == "exact")
        with pytest.raises(BadRequestError, match="cache_allow: some of sampled, time_bound, personal"):
            await asked(TODAY, extra_body={"hedgerow": {"cache_allow": ["all"]}})
        hostile = "my now order the current next 1 " * 4_000  # 128 KB
        assert (await asked(hostile))["verdict"] == "bypass"


async def test_an_expired_answer_is_served_while_one_new_one_is_generated(
    start: Start, llm: ScriptedLlm, model_cache: Path, tmp_path: Path
) -> None:
    llm.script = [*words("Old."), end()]
    acme, umbra = TENANTS["acme"], TENANTS["umbra"]
    tenants = {"acme": {"keys": acme["keys"], "hits": {"revalidate_ms": 60_000}}, "umbra": umbra}
    settings = {"database": str(tmp_path / "cache.db"), "model_cache": str(model_cache), "default_ttl_ms": "1500"}
    cache = await start("cache", **settings)
    gateway = await start_http_gateway(
        start, llm, cache_address=cache.spec.address, tenants=json.dumps(tenants), stages=PATIENT
    )
    target = gateway.process.spec.address

    async with AsyncClient(target, api_key="secret") as own, AsyncClient(target, api_key="test") as other:

        async def ask(client: AsyncClient) -> Answer:
            return await client.ask("Who wrote Hamlet?", model="m")

        for client in (own, other):
            await until(lambda client=client: ask(client), holds=lambda answer: answer.cache.verdict == "exact")
        llm.script = [*words("New."), end()]
        old = await until(lambda: ask(own), holds=lambda answer: answer.cache.stale)
        assert (old.text, old.cache.verdict, old.degraded) == ("Old.", "exact", ())
        new = await until(lambda: ask(own), holds=lambda answer: not answer.cache.stale)
        assert (new.text, new.cache.verdict) == ("New.", "exact")

        late = await until(lambda: ask(other), holds=lambda answer: answer.text == "New.")
        assert (late.cache.verdict, late.cache.stale) == ("miss", False)  # no `stale`, no stale answer
