"""An MCP server that offers a tool with another source's name is never called in its place."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.tool.v1 import tool_pb2, tool_pb2_grpc
from tests.conftest import REPOSITORY
from tests.fault.asking import Asker, asking
from tests.fault.beside import asking_beside, check, honest_before
from tests.fault.faulty_llm import FaultyLlm
from tests.fault.mesh import Processes
from tests.fault.report import Report
from tests.integration.scripted import serving
from tests.integration.scripted_tool_service import ScriptedToolService
from tests.keys import tenants
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]
_ROGUE = str(REPOSITORY / "tests/integration/hostile_mcp.py")
_UNKNOWN = "tools:unavailable"


class LateTools(ScriptedToolService):
    """Lists its tools once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.says = {"weather": (0.0, tool_pb2.CallToolResponse(content="rain"))}
        self.may_list = asyncio.Event()

    async def ListTools(self, request: tool_pb2.ListToolsRequest, context: Any) -> tool_pb2.ListToolsResponse:
        await self.may_list.wait()
        return await super().ListTools(request, context)


def _beforehand(name: str) -> dict[str, Any]:
    return {"mesh_tools": [pb.MeshTool(name=name, arguments="{}")], "bypass": True}


def _offered(name: str) -> dict[str, Any]:
    return {"mesh_tools": [pb.MeshTool(name=name, offered=True)], "bypass": True}


async def test_a_tool_named_like_another_source_is_not_called_for_it(
    starter: Processes, llm: FaultyLlm, report: Report, full_size: bool, tmp_path: Path
):
    times, called = 200 if full_size else 5, tmp_path / "called"
    of_all = tenants("a", "kb", "b")
    of_all["a"]["tools"], of_all["kb"]["tools"] = ["*"], ["kb/*"]
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        kb = await enter(serving(LateTools(), tool_pb2_grpc.add_ToolServiceServicer_to_server))
        rogue = [sys.executable, _ROGUE, "clash", str(called)]
        gateway = await starter.gateway(
            llm.address,
            tenants=of_all,
            tools={
                "sources": {"rogue": {"command": rogue}, "kb": {"address": kb.target, "call_ms": 10_000}},
                "refresh_ms": 1_000,
            },
        )
        a, of_kb, b = [await enter(asking(gateway.spec.address, f"key-{name}")) for name in of_all]
        before = await honest_before(b)
        await until(lambda: a.ask(**_beforehand("rogue/weather")), holds=lambda outcome: outcome.ok)
        mine = _calls(called)  # it was asked for by its own path
        with report.case(48, "a tool with another source's name, before that source has listed its own") as row:
            async with asking_beside(b) as during:
                for _ in range(times):
                    for caller in (a, of_kb):
                        for name in ("weather", "kb/weather"):
                            row.count(outcome := await caller.ask(**_beforehand(name)))
                            assert _UNKNOWN in outcome.final.degraded, outcome
                    row.count(outcome := await a.ask(**_offered("weather")))
                    assert _UNKNOWN in outcome.final.degraded, outcome
            check(row, before, during)
            assert _calls(called) == mine
        with report.case(48, "the same, after it has listed its own") as row:
            kb.may_list.set()
            await until(lambda: of_kb.ask(**_beforehand("kb/weather")), holds=lambda outcome: outcome.ok)
            heard = len(kb.requests)
            async with asking_beside(b) as during:
                for _ in range(times):
                    for ask in (_beforehand, _offered):
                        row.count(outcome := await a.ask(**ask("weather")))
                        assert outcome.code is grpc.StatusCode.INVALID_ARGUMENT, outcome
                        assert {"rogue/weather", "kb/weather"} <= set(outcome.details.replace(",", "").split()), outcome
                    row.count(outcome := await a.ask(**_beforehand("kb/weather")))
                    assert outcome.ok
                    row.count(outcome := await of_kb.ask(**_beforehand("weather")))  # it may use no other
                    assert outcome.ok
                row.count(outcome := await a.ask(mesh_tools=[_all_of("rogue"), _all_of("kb")]))
                assert outcome.code is grpc.StatusCode.INVALID_ARGUMENT, outcome
            check(row, before, during)
            assert len(kb.requests) - heard == 2 * times
            assert _calls(called) == mine
            await _is_called_by_its_own_path(a, called)


def _calls(file: Path) -> int:
    """How often the rogue has been called."""
    return len(file.read_text().splitlines())


def _all_of(source: str) -> pb.MeshTool:
    return pb.MeshTool(source=source, offered=True)


async def _is_called_by_its_own_path(caller: Asker, called: Path) -> None:
    """So that the count above says something."""
    before = _calls(called)
    assert (await caller.ask(**_beforehand("rogue/weather"))).ok
    assert _calls(called) == before + 1
