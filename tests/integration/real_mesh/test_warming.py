"""A real gateway that keeps its models warm, before models that come, go and are asked by others meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from hedgerow import AsyncClient
from hedgerow.chat.v1 import chat_pb2
from launcher.processes import free_port
from tests.conftest import Start
from tests.integration.command import run
from tests.integration.running_up import Up
from tests.integration.scripted_llm import ScriptedLlm, end, scripted_llm, words
from tests.keys import digest
from tests.waiting import until

PROMPT = "Answer as the support of a bicycle shop does. " + " ".join(
    f"Of bicycle number {number} say that it is described on page {7 * number} of the manual." for number in range(20)
)
SYSTEM_PROMPTS = json.dumps({"support": {"version": "3", "default": PROMPT}})
KEY, COLD_KEY = "sesame", "simsim"


@pytest.fixture
async def llm() -> AsyncIterator[ScriptedLlm]:
    async with scripted_llm() as llm:
        llm.script = [*words("Paris."), end()]
        yield llm


def alone(llm: ScriptedLlm, **settings: str) -> dict[str, str]:
    """A gateway's settings with this one model."""
    addresses = {"llm_addresses": json.dumps({"m": llm.target}), "cache_address": "", "router_address": ""}
    return {**addresses, "system_prompts": SYSTEM_PROMPTS, **settings}


def prompts_read(llm: ScriptedLlm) -> list[tuple[str, str]]:
    """The system prompts that the model was asked to read, and their tenants."""
    return [
        (asked.messages[0].content, asked.cache_salt)
        for asked in llm.requests
        if asked.messages[0].role == chat_pb2.ROLE_SYSTEM
    ]


async def test_a_gateway_has_its_prompts_read_before_any_request_and_charges_no_tenant(
    start: Start, llm: ScriptedLlm
) -> None:
    tenants = {
        "acme": {"keys": [digest(KEY)], "warm": True, "tokens_per_minute": 1, "requests_per_s": 0.001},
        "cold": {"keys": [digest(COLD_KEY)]},
    }
    metrics = f"127.0.0.1:{free_port()}"
    gateway = await start(
        "gateway",
        **alone(llm, warm='{"prompts": ["support"]}', tenants=json.dumps(tenants), metrics_address=metrics),
    )
    ((prompt, salt),) = await until(lambda: prompts_read(llm))
    assert prompt == PROMPT
    assert salt
    assert llm.requests[0].sampling.max_tokens == 1
    async with AsyncClient(gateway.spec.address, api_key=COLD_KEY) as client:
        answer = await client.ask("Hello?", system_prompt="support")
        assert answer.text == "Paris."
    cold_salt = llm.requests[-1].cache_salt
    assert cold_salt not in ("", salt), "tenants must not share a prefix cache"
    scraped = await _metrics(metrics)
    assert 'hedgerow_warmed_total{model="m",outcome="ok"} 1.0' in scraped
    assert 'hedgerow_attempts_total{kind="first",model="m",outcome="ok"} 1.0' in scraped, "warm-up calls do not count"


async def test_hedgerow_warm_reports_each_step_and_refuses_tenants_without_permission(
    start: Start, llm: ScriptedLlm
) -> None:
    tenants = {"acme": {"keys": [digest(KEY)], "warm": True}, "cold": {"keys": [digest(COLD_KEY)]}}
    gateway = await start("gateway", **alone(llm, tenants=json.dumps(tenants)))
    target = gateway.spec.address
    code, out, err = await run("warm", "--target", target, "--system-prompt", "support", "--json", HEDGEROW_API_KEY=KEY)
    assert (code, err) == (0, "")
    output = json.loads(out)
    assert output["warm"] is True
    assert [(step["kind"], step["replica"], step["prompt"]) for step in output["steps"]] == [
        ("connection", "m#1", ""),
        ("engine", "m#1", ""),
        ("prompt", "m#1", "support@3 (default)"),
    ]
    assert all(step["before_ms"] > 0 and step["after_ms"] > 0 for step in output["steps"][1:])
    assert len(prompts_read(llm)) == 2
    code, out, _ = await run("warm", "--gateway", target, HEDGEROW_API_KEY=KEY)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["connection", "engine"]
    code, out, err = await run("warm", "--gateway", target, HEDGEROW_API_KEY=COLD_KEY)
    assert (code, out) == (1, "")
    assert "for tenants whose setting `warm` is true" in err
    code, out, _ = await run("warm", "--gateway", target, "--json", "--system-prompt", "else", HEDGEROW_API_KEY=KEY)
    assert code == 1
    assert json.loads(out)["error"]["message"].startswith("system_prompts: one of support, got else")


async def test_hedgerow_warm_fails_where_a_replica_is_away(start: Start, llm: ScriptedLlm) -> None:
    away = f"127.0.0.1:{free_port()}"
    gateway = await start("gateway", **alone(llm, llm_addresses=json.dumps({"m": [llm.target, away]})))
    code, out, _ = await run("warm", "--gateway", gateway.spec.address, "--json")
    output = json.loads(out)
    assert (code, output["warm"]) == (1, False)
    assert [step["problem"] for step in output["steps"] if step["problem"]] == ["m: no connection within 2 s"]
    assert away not in out, "callers know replicas by their model and a number"


async def test_a_late_or_restarted_replica_is_connected_and_warm_before_any_request(start: Start) -> None:
    later = f"127.0.0.1:{free_port()}"
    settings = {
        "llm_addresses": json.dumps({"m": later}),
        "warm": '{"prompts": ["support"], "every_ms": 0}',
        "ready__models": "0",
    }
    await start("gateway", **alone(ScriptedLlm(), **settings))
    for _ in range(2):
        async with scripted_llm(later) as llm:
            llm.script = [*words("Paris."), end()]
            assert await until(lambda: prompts_read(llm)) == [(PROMPT, "")]


async def test_an_engine_has_read_the_prompt_when_its_tenant_asks_for_the_first_time_and_for_no_other(
    start: Start, up: Up
) -> None:
    tenants = {"acme": {"keys": [digest(KEY)], "warm": True}, "cold": {"keys": [digest(COLD_KEY)]}}
    metrics = f"127.0.0.1:{free_port()}"
    settings = {"warm": '{"prompts": ["*"]}', "tenants": json.dumps(tenants), "metrics_address": metrics}
    engine = json.dumps({"m": up.address("llm-fast-1")})
    addresses = {"llm_addresses": engine, "cache_address": "", "router_address": ""}
    gateway = await start("gateway", **addresses, system_prompts=SYSTEM_PROMPTS, **settings)

    async def has_read() -> bool:
        return 'hedgerow_warmed_total{model="m",outcome="ok"} 1.0' in await _metrics(metrics)

    await until(has_read)

    async def reused(key: str) -> int:
        async with AsyncClient(gateway.spec.address, api_key=key) as client:
            answer = await client.ask("Do you mend tyres?", system_prompt="support", max_tokens=4)
            return answer.usage.cached_prompt_tokens

    assert await reused(KEY) > 0
    assert await reused(COLD_KEY) == 0
    assert await reused(COLD_KEY) > 0, "a tenant reuses its own prompts"


async def _metrics(address: str) -> str:
    async with httpx.AsyncClient(timeout=30) as http:
        return (await http.get(f"http://{address}/metrics")).text


async def test_a_tool_service_is_connected_before_its_first_call(start: Start, llm: ScriptedLlm) -> None:
    """The first request that needs the tools asks for their list; the connection exists before."""
    accepted = asyncio.Event()

    async def took(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        writer.close()

    async with await asyncio.start_server(took, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        sources = {"late": {"address": f"{host}:{port}"}}
        await start("gateway", **alone(llm, tools=json.dumps({"sources": sources})))
        async with asyncio.timeout(30):
            await accepted.wait()
