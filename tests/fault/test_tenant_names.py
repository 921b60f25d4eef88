"""Tenants with names that mean something elsewhere: no name is a right, and names that look alike are none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.tool.v1 import tool_pb2
from launcher.processes import free_port
from tests.certificates import Certificates, mutual
from tests.fault.asking import MODEL, Asker, asking
from tests.fault.beside import asking_beside, check, honest_before
from tests.fault.faulty_llm import SERVICE, FaultyLlm, serving
from tests.fault.mesh import Processes
from tests.fault.report import Report, Row
from tests.fault.test_closed_by_default import refused_start
from tests.integration.edge.running import Issuer, edge_before
from tests.integration.scripted_tool_service import serve_tools
from tests.keys import digest, tenants
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]
_NAMES = ("local", "edge", "gateway", "operator", "default", "anonymous", "*", "../x", "None", "0")
_NO_NAMES = ("", " ", " a", "a\n", "a\u200b", "\uff41", "e\u0301", "a\u202e", "x" * 257)


async def test_no_name_of_a_tenant_is_a_right(starter: Processes, llm: FaultyLlm, report: Report):
    metrics, http = (f"127.0.0.1:{free_port()}" for _ in range(2))
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        kb = await enter(serve_tools())
        kb.says = {"weather": (0.0, tool_pb2.CallToolResponse(content="rain"))}
        cache = await starter.start("cache")
        gateway = await starter.gateway(
            llm.address,
            cache_address=cache.spec.address,
            tenants=tenants("victim", "b", *_NAMES),
            tools={"sources": {"kb": {"address": kb.target, "call_ms": 10_000}}},
            http_address=http,
            metrics_address=metrics,
        )
        at = gateway.spec.address
        victim, b = [await enter(asking(at, f"key-{name}")) for name in ("victim", "b")]
        page = await enter(httpx.AsyncClient(base_url=f"http://{http}"))
        before = await honest_before(b)
        asked = await until(lambda: victim.ask("Whose is it?"), holds=lambda outcome: outcome.final.cache.key)
        key = asked.final.cache.key
        with report.case(46, f"tenants called {', '.join(map(repr, _NAMES))}, by key") as row:
            async with asking_beside(b) as during:
                for name in _NAMES:
                    async with asking(at, f"key-{name}") as caller:
                        await _has_no_more_than_others(row, caller)
                    await _reads_no_more_than_others(row, page, name, key)
            check(row, before, during)
            kept = await victim.ask("Whose is it?")
            assert kept.final.cache.verdict == pb.CACHE_VERDICT_EXACT
        assert kb.requests == []


async def _has_no_more_than_others(row: Row, caller: Asker) -> None:
    """An answer of its own, and none of the mesh's tools."""
    outcome = await caller.ask("Whose is it?")
    row.count(outcome)
    assert outcome.ok
    assert outcome.final.cache.verdict == pb.CACHE_VERDICT_MISS
    with_tool = await caller.ask(mesh_tools=[pb.MeshTool(name="weather", arguments="{}")])
    row.count(with_tool)
    assert with_tool.code is grpc.StatusCode.INVALID_ARGUMENT
    listed: Any = await caller.stub.ListTools(pb.ListToolsRequest(), metadata=caller.metadata, timeout=10)
    assert (list(listed.tools), list(listed.sources)) == ([], [])


async def _reads_no_more_than_others(row: Row, page: httpx.AsyncClient, name: str, key: str) -> None:
    """A tenant reads no data of all tenants or of another one, and none that needs a permission."""
    headers = {"authorization": f"Bearer key-{name}"}
    stored = {"model": "simulated", "messages": [{"role": "user", "content": "?"}], "store": True}
    statuses = [
        (await page.get("/metrics", headers=headers)).status_code,
        (await page.get("/v1/cache/stats", headers=headers)).status_code,
        (await page.post("/v1/chat/completions", headers=headers, json=stored)).status_code,
    ]
    removed = await page.delete(f"/v1/cache/{key}", headers=headers)
    row.tally(ok=1, failed=len(statuses))
    assert statuses == [501, 501, 403], name
    assert removed.json() == {"removed": 0}


async def test_indistinguishable_names_are_refused_at_the_start(starter: Processes, report: Report):
    with report.case(46, "names that are equal or invalid, in the settings") as row:
        launched = [
            starter.launch("gateway", llm_addresses={"m": "127.0.0.1:1"}, tenants={name: {"keys": [digest("key")]}})
            for name in _NO_NAMES
        ]
        for process in launched:
            said = await refused_start(process)
            row.tally(failed=1)
            assert "tenants: a name of" in said, said


async def test_no_name_in_a_token_is_a_right(report: Report, tmp_path: Path):
    certificates, issuer = Certificates(tmp_path / "certs"), Issuer()
    issued = certificates.authority.issue("llm", days=1)
    credentials = grpc.ssl_server_credentials(
        [(issued.key, issued.certificate)], certificates.authority.pem(), require_client_auth=True
    )
    (tmp_path / "jwks.json").write_text(issuer.jwks())
    named: Mapping[str, Any] = {"victim": {"tools": ["*"]}, "b": {}}
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        kb = await enter(serve_tools())
        kb.says = {"weather": (0.0, tool_pb2.CallToolResponse(content="rain"))}
        behind = await enter(serving(SERVICE, FaultyLlm(), credentials))
        gateway = await mutual(
            stack,
            certificates,
            tmp_path,
            "gateway",
            cache_address="",
            router_address="",
            llm_addresses=json.dumps({MODEL: behind}),
            tenants=json.dumps(named),
            tools=json.dumps({"sources": {"kb": {"address": kb.target, "call_ms": 10_000}}}),
        )
        edge = await enter(
            edge_before(
                tmp_path,
                [gateway.spec.address],
                {"jwt": issuer.written(tmp_path)},
                control_tls_dir=certificates.folder / "control",
                tls_dir=certificates.folder / "edge",
            )
        )
        b = await enter(asking(edge.address, issuer.token(tenant="b")))
        before = await honest_before(b)
        with report.case(46, "the same names, and names that are none, in a token's claim, through Envoy") as row:
            async with asking_beside(b) as during:
                for name in (*_NAMES, 0, ["victim"], {"a": "victim"}):  # a name that is no text is used as it is
                    async with asking(edge.address, issuer.token(tenant=name)) as caller:
                        outcome = await caller.ask(mesh_tools=[pb.MeshTool(name="weather", arguments="{}")])
                    row.count(outcome)
                    assert outcome.code in _REFUSED, (name, outcome)
                for no_name in (*_NO_NAMES, None):
                    async with asking(edge.address, issuer.token(tenant=no_name)) as caller:
                        outcome = await caller.ask()
                    row.count(outcome)
                    assert outcome.code in _REFUSED, (no_name, outcome)
            check(row, before, during)
        assert kb.requests == []


_REFUSED = (
    grpc.StatusCode.INVALID_ARGUMENT,  # a tool that this tenant does not have
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
)
