"""A real gateway with third-party tools, malicious servers, and the reports by gRPC and HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL
from pathlib import Path

import httpx
import pytest

import hedgerow
from hedgerow import AsyncClient, Citations, MeshTool, Patch
from hedgerow.chat.v1 import chat_pb2
from hedgerow.tool.v1 import tool_pb2
from launcher.processes import free_port
from tests.conftest import REPOSITORY, Start
from tests.integration.calling_llm import QUESTION, CallingLlm, calling_llm, listed, start_gateway
from tests.integration.collector import collecting
from tests.integration.command import run as run_command
from tests.integration.foreign_clients import Installed
from tests.integration.hostile_mcp import ORDER
from tests.integration.scripted_tool_service import serve_tools
from tests.keys import digest

HOSTILE = str(REPOSITORY / "tests/integration/hostile_mcp.py")
PATIENT = '{"tools": 20000}'  # a busy machine is no tool that is late
SOURCES = ("many", "large", "silent", "flood", "clash", "dead")


@pytest.fixture
def everything() -> list[str]:
    """The command of the reference server."""
    modules = Installed().node("mcp")
    return [shutil.which("node") or "node", str(modules / "@modelcontextprotocol/server-everything/dist/index.js")]


async def test_a_third_party_server_is_called_beforehand_and_by_an_agent(start: Start, everything: list[str]) -> None:
    port = free_port()
    served = await asyncio.create_subprocess_exec(
        *everything, "streamableHttp", env={**os.environ, "PORT": str(port)}, stdout=DEVNULL, stderr=DEVNULL
    )
    sources = {
        "local": {"command": [*everything, "stdio"], "call_ms": 20_000},
        "remote": {"url": f"http://127.0.0.1:{port}/mcp", "prefix": "web_", "reusable_ms": 60_000, "call_ms": 20_000},
    }
    try:
        async with calling_llm() as llm:
            address = await start_gateway(start, llm, sources, stage_caps_ms=PATIENT)
            async with AsyncClient(address) as client:
                await listed(client, "get-sum", "web_echo")
                await _beforehand(client, llm)
                await _as_an_agent(client, llm)
    finally:
        served.kill()
        await served.wait()


async def _beforehand(client: AsyncClient, llm: CallingLlm) -> None:
    asked = [MeshTool("get-sum", {"a": 2, "b": 3}), MeshTool("web_get-resource-links", {"count": 2})]
    answer = await client.ask(QUESTION, mesh_tools=[*asked, MeshTool("web_echo", {"message": "Grüße"})])
    assert answer.text == "It rains."
    assert "The sum of 2 and 3 is 5." in llm.read
    assert "Echo: Grüße" in llm.read
    (found,) = answer.citations
    assert found.tool == "web_get-resource-links"
    assert [each.title for each in found.citations] == ["Blob Resource 1", "Text Resource 2"]
    assert {stage.name: stage.outcome for stage in answer.stages}["tool:get-sum"] == "ok"
    again = await client.ask(QUESTION, mesh_tools=asked)
    assert [(made.action, made.subject) for made in again.decisions] == [("reused", "web_get-resource-links")]
    wrong = await client.ask(QUESTION, mesh_tools=[MeshTool("get-sum", {"a": "x"})])
    assert wrong.degraded == ("tools:unavailable",)
    assert "get-sum failed: " in llm.read
    late = MeshTool("trigger-long-running-operation", {"duration": 60, "steps": 1})
    hurried = await client.ask(QUESTION, mesh_tools=[late], budget_ms=8_000)
    assert hurried.degraded == ("tools:budget",)


async def _as_an_agent(client: AsyncClient, llm: CallingLlm) -> None:
    llm.wants = [("get-sum", {"a": 40, "b": 2}), ("echo", {"message": "hello"})]
    answer = await client.ask(QUESTION, mesh_tools=[MeshTool(source="local")])
    assert answer.text == "It rains."
    *_, first, second = llm.requests[-1].messages
    assert "The sum of 40 and 2 is 42." in first.content
    assert "Echo: hello" in second.content
    assert {stage.name for stage in answer.stages} >= {"agent", "tool:get-sum", "tool:echo", "llm"}
    assert len(llm.requests[-2].tools) >= 10
    assert llm.requests[-1].tool_choice.mode == chat_pb2.TOOL_MODE_NONE


async def test_a_server_that_means_ill_costs_an_answer_its_time_at_most_and_others_nothing(start: Start) -> None:
    times = {way: 400 if way == "silent" else 60_000 for way in SOURCES}
    hostile = {way: {"command": [sys.executable, HOSTILE, way], "call_ms": times[way]} for way in SOURCES}
    stages = json.dumps({"tools": {"share": 0.5, "cap_ms": 60_000}})
    limits = {"max_tools": 8}
    async with calling_llm() as llm, serve_tools() as kb:
        kb.says = {"weather": (0.0, tool_pb2.CallToolResponse(content="rain"))}
        sources = {"kb": {"address": kb.target, "call_ms": 60_000}, **hostile}
        address = await start_gateway(start, llm, sources, tools=limits, stages=stages)
        async with AsyncClient(address) as client:
            await listed(client, "weather", "tool_1", "orders", "large", "silent", "flood", "dead")
            tools, listed_sources = await client.tools()
            problems = {source.name: source.problem for source in listed_sources}
            assert "at most 8 tools, got 10000" in problems["many"]
            assert "tools of another source have these names, too, so ask by source/name: weather" in problems["clash"]
            assert "name: 1 to 64 letters" in problems["clash"]
            described = next(tool.description for tool in tools if tool.name == "orders")
            assert len(described.encode()) <= 2_048 < len(ORDER)
            assert "\u202e" not in described
            why = {}
            for way in ("large", "silent", "flood", "dead"):
                answer = await client.ask(QUESTION, mesh_tools=[MeshTool(way, {}), "kb/weather"], budget_ms=60_000)
                assert answer.text == "It rains."
                assert '<tool_result name="weather">\nrain\n' in llm.read
                why[way] = [(made.action, made.reason) for made in answer.decisions]
            assert why == {
                "large": [("unavailable", "large: messages of at most 1048576 bytes, got a longer one")],
                "silent": [("late", "not within its 400 ms")],
                "flood": [("unavailable", "flood: at most 500 messages of 8192 bytes a second, got more")],
                "dead": [("unavailable", "dead: it has ended")],
            }


async def test_every_api_shows_the_calls_and_a_tenant_has_no_other_tenants_tools(start: Start, tmp_path: Path) -> None:
    port = free_port()
    tenants = {
        name: {"keys": [digest(f"{name}-key")], "tools": tools}
        for name, tools in (("acme", ["kb/*", "late/*"]), ("other", ["kb/*"]), ("none", []))
    }
    async with calling_llm() as llm, serve_tools() as kb, serve_tools() as late, collecting() as traces:
        llm.pause_s, llm.awaited, kb.only = 1.0, True, "acme"
        place = tool_pb2.Citation(source="met.no", title="Forecast", text="rain", score=0.9)
        kb.says = {"weather": (0.0, tool_pb2.CallToolResponse(content="rain", citations=[place]))}
        late.says = {"news": (llm.begins, tool_pb2.CallToolResponse(content="a fox"))}
        sources = {"kb": {"address": kb.target, "call_ms": 20_000}, "late": {"address": late.target, "call_ms": 200}}
        address = await start_gateway(
            start,
            llm,
            sources,
            tenants=json.dumps(tenants),
            http_address=f"127.0.0.1:{port}",
            otlp_endpoint=f"http://{traces.address}",
            stage_caps_ms=PATIENT,
        )
        async with AsyncClient(address, api_key="acme-key") as client:
            async with client.stream(QUESTION, mesh_tools=["weather", "news"]) as stream:
                events = [event async for event in stream]
            assert [each.tool for each in events if isinstance(each, Citations)] == ["weather"]
            assert [each for each in events if isinstance(each, Patch)] == [Patch("tool:news", "a fox")]
            llm.awaited = False
            answer = events[-1].answer
            assert kb.requests[-1].arguments == json.dumps({"query": QUESTION}, separators=(",", ":"))
            spans = {span.name: span for span in await traces.wait_for(answer.trace_id, {"gateway"})}
            assert spans["tool:weather"].parent_id == spans["tools"].span_id
            assert kb.metadata["x-hedgerow-tenant"] == "acme"
            assert kb.metadata["traceparent"].split("-")[1] == answer.trace_id
            asked = [{"messages": QUESTION, "mesh_tools": ["weather"]}, {"messages": QUESTION, "mesh_tools": ["radar"]}]
            results = dict([result async for result in client.batch(asked)])
            assert [each.tool for each in results[0].citations] == ["weather"]
            assert "mesh_tools[0].name: one of kb/weather, late/news, got radar" in str(results[1])
        for name in ("other", "none"):
            async with AsyncClient(address, api_key=f"{name}-key") as client:
                with pytest.raises(hedgerow.InvalidArgument, match=r"mesh_tools\[0\]\.name: one of none, got weather"):
                    await client.ask(QUESTION, mesh_tools=["weather"])
        await _by_http(f"http://127.0.0.1:{port}", llm)
        code, out, _ = await run_command("tools", "--gateway", address, "--api-key", "acme-key", "--json")
        assert code == 0
        assert [tool["name"] for tool in json.loads(out)["tools"]] == ["weather", "news"]
        llm.awaited = True
        code, out, _ = await run_command(
            *("ask", QUESTION, "--tool", "weather", "--tool", 'news={"query":"x"}', "--gateway", address),
            *("--api-key", "acme-key"),
        )
        assert code == 0
        assert "tool:weather" in out
        assert "from  weather: Forecast (met.no)" in out
        assert "tool late: news" in out


async def _by_http(url: str, llm: CallingLlm) -> None:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": QUESTION}],
        "hedgerow": {"mesh_tools": ["weather"], "tool_calls": 1},
    }
    async with httpx.AsyncClient(base_url=url, headers={"authorization": "Bearer acme-key"}, timeout=30) as http:
        reply = (await http.post("/v1/chat/completions", json=body)).json()
        assert reply["choices"][0]["message"]["content"] == "It rains."
        assert reply["hedgerow"]["citations"][0]["citations"][0]["source"] == "met.no"
        llm.wants = [("weather", {"query": "Oslo"})]
        body["hedgerow"] = {"mesh_tools": [{"name": "weather", "offered": True}]}
        reply = (await http.post("/v1/chat/completions", json=body)).json()
        assert "tool:weather" in [stage["name"] for stage in reply["hedgerow"]["stages"]]
        assert reply["choices"][0]["finish_reason"] == "stop"
