"""A tenant reports a wrong hit, by gRPC, HTTP and the CLI, and does not get it again; another tenant cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from hedgerow import Answer, AsyncClient, Client, InvalidArgument
from tests.conftest import Start
from tests.fault.mesh import PATIENT_LOOKUPS
from tests.integration.command import run
from tests.integration.http_gateway import start_http_gateway
from tests.integration.scripted_llm import ScriptedLlm, end, scripted_llm, words
from tests.keys import digest
from tests.waiting import until

CAPITAL, REWORDED = "What is the capital of France?", "Tell me the capital of France."
FARTHER = "Please tell me, what is the capital city of France?"
PATIENT = json.dumps(PATIENT_LOOKUPS)
KEYS = {
    "acme": {"keys": [digest("secret")]},
    "umbra": {"keys": [digest("test")]},
    "rare": {"keys": [digest("rare")], "requests_per_s": 0.01, "requests_burst": 2},
}


async def test_a_wrong_hit_that_is_reported_never_comes_again(
    start: Start, llm: ScriptedLlm, model_cache: Path, tmp_path: Path
) -> None:
    llm.script = [*words("Paris."), end()]
    cache = await start("cache", database=str(tmp_path / "cache.db"), model_cache=str(model_cache))
    gateway = await start_http_gateway(
        start, llm, cache_address=cache.spec.address, tenants=json.dumps(KEYS), stages=PATIENT
    )
    target = gateway.process.spec.address

    async with AsyncClient(target, api_key="secret") as acme, AsyncClient(target, api_key="test") as umbra:

        async def ask(text: str) -> Answer:
            return await acme.ask(text, model="m", min_similarity=0.8)

        hit = await until(lambda: ask(CAPITAL), holds=lambda answer: answer.cache.key)  # stored
        for alike in (REWORDED, FARTHER):
            answer = await ask(alike)
            assert (answer.cache.verdict, answer.cache.key) == ("semantic", hit.cache.key)

        # Another tenant, which may compute the key, changes nothing and learns nothing.
        assert not await umbra.report_wrong(answer)
        assert not await umbra.report_wrong("0" * 64)
        assert (await ask(FARTHER)).cache.verdict == "semantic"
        for key, question in (("nonsense", None), (hit.cache.key, " ")):
            with pytest.raises(InvalidArgument):
                await acme.report_wrong(key, question)

        assert await acme.report_wrong(answer, FARTHER)
        assert (await ask(FARTHER)).cache.key != hit.cache.key
        assert (await ask(REWORDED)).cache.verdict == "semantic"  # it is nearer
        with Client(target, api_key="secret") as blocking:
            assert blocking.report_wrong(hit.cache.key, REWORDED)
        assert (await ask(REWORDED)).cache.key != hit.cache.key
        assert (await ask(CAPITAL)).cache.verdict == "exact"

    async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as http:
        body = {"key": hit.cache.key, "question": REWORDED}
        for key, tightened in (("secret", True), ("test", False)):
            response = await http.post("/v1/cache/wrong", json=body, headers={"x-api-key": key})
            assert response.json() == {"tightened": tightened}
        assert (await http.post("/v1/cache/wrong", json=body)).status_code == 401
        assert (await http.post("/v1/cache/wrong", json={}, headers={"x-api-key": "secret"})).status_code == 400
        replies = [(await http.post("/v1/cache/wrong", json=body, headers={"x-api-key": "rare"})) for _ in range(3)]
        assert replies[-1].status_code == 429, "each report counts for the tenant's quota"

    for key, expected in (("secret", (0, {"tightened": True})), ("test", (1, {"tightened": False}))):
        command = ("cache", "wrong", hit.cache.key, "--gateway", target, "--api-key", key, "--json")
        code, out, _ = await run(*command)
        assert (code, json.loads(out)) == expected


async def test_a_hit_that_a_judge_refuses_is_measured_and_never_comes_again(
    start: Start, llm: ScriptedLlm, model_cache: Path, tmp_path: Path
) -> None:
    llm.script = [*words("Paris."), end()]
    settings = {"verify_share": 1, "similarity_threshold": 0.8, "model_cache": str(model_cache)}
    cache = await start("cache", database=str(tmp_path / "cache.db"), **settings)
    async with scripted_llm() as judge:
        judge.script = [*words("No."), end()]
        models = json.dumps({"m": llm.target, "judge": judge.target})
        address = cache.spec.address
        gateway = await start_http_gateway(
            start,
            llm,
            cache_address=address,
            llm_addresses=models,
            judge=json.dumps({"model": "judge"}),
            stages=PATIENT,
        )
        async with AsyncClient(gateway.process.spec.address) as client:
            hit = await until(lambda: client.ask(CAPITAL, model="m"), holds=lambda each: each.cache.key)
            assert judge.requests == []  # an exact hit is no candidate
            assert (await client.ask(REWORDED, model="m")).cache.key == hit.cache.key
            again = await until(
                lambda: client.ask(REWORDED, model="m"), holds=lambda each: each.cache.verdict != "semantic"
            )
            assert again.cache.key != hit.cache.key
        asked = [message.content for message in judge.requests[0].messages]
        assert asked[:2] == [REWORDED, "Paris."]

    async def stats() -> Any:
        (value,) = json.loads((await run("cache", "stats", "--cache", address, "--json"))[1])["caches"]
        return value

    value = await until(stats, holds=lambda value: value["verified"] == len(judge.requests))
    assert value["verified"] == value["verified_wrong"] == value["tightened"] >= 1
    assert 0 < value["wrong_share_lower"] < value["wrong_share"] <= value["wrong_share_upper"] <= 1
    assert value["threshold"] >= 0.8
    shown = (await run("cache", "stats", "--cache", address))[1]
    assert "%" in shown
    async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as http:
        by_http = (await http.get("/v1/cache/stats")).json()
    assert (by_http["verified"], by_http["wrong_share"]) == (value["verified"], value["wrong_share"])
    assert by_http["category_thresholds"] == []


async def test_decisions_of_a_judge_count_for_their_category_alone(
    start: Start, llm: ScriptedLlm, model_cache: Path, tmp_path: Path
) -> None:
    llm.script = [*words("Paris."), end()]
    settings = {"verify_share": 1, "similarity_threshold": 0.8, "model_cache": str(model_cache)}
    cache = await start("cache", database=str(tmp_path / "cache.db"), **settings)
    hits = {"categories": {"places": {"words": ["capital*"], "ttl_ms": 60_000, "max_wrong": 0.002}}}
    async with scripted_llm() as judge:
        judge.script = [*words("Yes."), end()]
        models = json.dumps({"m": llm.target, "judge": judge.target})
        gateway = await start_http_gateway(
            start,
            llm,
            cache_address=cache.spec.address,
            llm_addresses=models,
            judge=json.dumps({"model": "judge"}),
            hits=json.dumps(hits),
            stages=PATIENT,
        )
        async with AsyncClient(gateway.process.spec.address) as client:
            await until(lambda: client.ask(CAPITAL, model="m"), holds=lambda each: each.cache.key)
            assert (await client.ask(REWORDED, model="m")).cache.category == "places"
            async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as http:

                async def stats() -> Any:
                    return (await http.get("/v1/cache/stats")).json()

                value = await until(stats, holds=lambda value: value["verified"])
    places = {"category": "places", "threshold": 0.8, "verified": value["verified"], "drift": ""}
    assert value["category_thresholds"] == [places]
    assert "places" in (await run("cache", "stats", "--cache", cache.spec.address))[1]
