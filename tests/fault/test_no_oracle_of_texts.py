"""What tenant A had embedded, stored, put into a collection or asked a tool: nothing that B gets depends on it."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import grpc
import httpx
import pytest
import pytest_asyncio

from hedgerow import AsyncCollectionClient
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.tool.v1 import tool_pb2, tool_pb2_grpc
from launcher.processes import free_port
from services.runtime.rpc.authorization import TENANT_HEADER
from tests.fault.asking import Asker, Outcome, asking
from tests.fault.beside import asking_beside, check, honest_before
from tests.fault.faulty_llm import faulty_llm
from tests.fault.mesh import PATIENT_LOOKUPS, processes
from tests.fault.report import Report
from tests.integration.scripted import serving
from tests.integration.scripted_tool_service import ScriptedToolService
from tests.keys import tenants
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]
_REUSABLE_MS = 600_000
_HANDBOOK = "# Ports\n\nThe secret port of the vault is 4711, behind the green door."
_NOTES = "# Notes\n\nThe cat is fed at noon. The door of the shed is red."
_SEARCHES = ("Which secret port has the vault?", "When is the cat fed?", "door")


class Reusable(ScriptedToolService):
    """A tool whose results may be reused."""

    def __init__(self) -> None:
        super().__init__()
        self.says = {"weather": (0.0, tool_pb2.CallToolResponse(content="rain"))}
        self.callers: list[str] = []

    async def ListTools(self, request: tool_pb2.ListToolsRequest, context: Any) -> tool_pb2.ListToolsResponse:
        listed = await super().ListTools(request, context)
        for tool in listed.tools:
            tool.reusable_ms = _REUSABLE_MS
        return listed

    async def CallTool(self, request: tool_pb2.CallToolRequest, context: Any) -> tool_pb2.CallToolResponse:
        result = await super().CallTool(request, context)
        self.callers.append(self.metadata[TENANT_HEADER])
        return result


@dataclass(frozen=True)
class Scene:
    """A gateway with a real cache, and tenants: A, B, and C, which only asks beside."""

    a: Asker
    b: Asker
    c: Asker
    pages: dict[str, httpx.AsyncClient]
    kb: Reusable
    cache: str


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        starter, llm = await enter(processes(tmp_path_factory.mktemp("texts"))), await enter(faulty_llm())
        kb = Reusable()
        tools = await enter(serving(kb, tool_pb2_grpc.add_ToolServiceServicer_to_server))
        cache, http = await starter.start("cache"), f"127.0.0.1:{free_port()}"
        of_all = {name: {**own, "tools": ["*"]} for name, own in tenants("a", "b", "c").items()}
        sources = {
            "kb": {"address": tools.target, "call_ms": 10_000},
            "collections": {"address": cache.spec.address, "identity": "cache", "call_ms": 30_000},
        }
        gateway = await starter.gateway(
            llm.address,
            cache_address=cache.spec.address,
            http_address=http,
            tenants=of_all,
            tools={"sources": sources, "refresh_ms": 1_000},
            stages=PATIENT_LOOKUPS,
        )
        a, b, c = [await enter(asking(gateway.spec.address, f"key-{name}")) for name in "abc"]
        pages = {
            name: await enter(
                httpx.AsyncClient(
                    base_url=f"http://{http}", headers={"authorization": f"Bearer key-{name}"}, timeout=60
                )
            )
            for name in "ab"
        }
        yield Scene(a, b, c, pages, kb, cache.spec.address)


def _text(kind: str, number: int) -> str:
    return f"The {kind} fox number {number:04} runs to the river of {kind} stones and comes back in the evening."


@dataclass(frozen=True)
class Reply:
    """All that a page gets, but for what names this one request and when it was; and in how many seconds."""

    status: int
    headers: tuple[str, ...]
    body: Any
    seconds: float


async def _said(page: httpx.AsyncClient, method: str, path: str, body: Any = None) -> Reply:
    began = time.perf_counter()
    reply = await page.request(method, path, json=body)
    return Reply(reply.status_code, tuple(sorted(reply.headers)), reply.json(), time.perf_counter() - began)


async def _embed(page: httpx.AsyncClient, text: str) -> Reply:
    return await _said(page, "POST", "/v1/embeddings", {"model": "auto", "input": text})


def _without_vectors(reply: Reply) -> tuple[Any, ...]:
    rest = [{name: value for name, value in each.items() if name != "embedding"} for each in reply.body["data"]]
    return reply.status, reply.headers, repr({**reply.body, "data": rest})


async def test_embeddings_say_nothing_of_what_another_tenant_had_embedded(
    scene: Scene, report: Report, full_size: bool
):
    number = 200 if full_size else 20
    before = await honest_before(scene.c)
    with report.case(47, f"A embeds {number} texts, B the same ones and others") as row:
        async with asking_beside(scene.c) as during:
            for each in range(number):
                assert (await _embed(scene.pages["a"], _text("known", each))).status == 200
            same, others = list[Reply](), list[Reply]()
            for each in range(number):  # in turns, so that time is the same for both
                others.append(await _embed(scene.pages["b"], _text("other", each)))
                same.append(await _embed(scene.pages["b"], _text("known", each)))
        check(row, before, during)
        row.tally(ok=len(same) + len(others))
        assert {_without_vectors(reply) for reply in same} == {_without_vectors(reply) for reply in others}
        ratio = statistics.median(r.seconds for r in same) / statistics.median(r.seconds for r in others)
        row.measured("A's texts off by", abs(ratio - 1) * 100, 10, " %", slack=8)


async def test_entries_of_another_tenant_look_like_no_entries(scene: Scene, report: Report, full_size: bool):
    page, before = scene.pages["b"], await honest_before(scene.c)
    asked = await until(lambda: scene.a.ask("Where is the vault?"), holds=_stored)
    own = await until(lambda: scene.b.ask("Where is the shed?"), holds=_stored)
    key, nothing = asked.final.cache.key, "0" * len(asked.final.cache.key)
    with report.case(47, "B removes, reports and counts what A has stored, and what no tenant has") as row:
        async with asking_beside(scene.c) as during:
            for path in ("/v1/cache/stats", f"/v1/cache/{key}", f"/v1/cache/{nothing}"):
                row.tally(failed=(await _said(page, "GET", path)).status >= 400)
            for _ in range(30 if full_size else 1):
                for method, path, body in (
                    ("DELETE", "/v1/cache/{}", None),
                    ("POST", "/v1/cache/wrong", {"question": "Where is the vault?"}),
                    ("POST", "/v1/cache/wrong", {"question": "Who ate my shoes?"}),
                ):
                    theirs, nobodys = [
                        await _said(page, method, path.format(each), body and body | {"key": each})
                        for each in (key, nothing)
                    ]
                    row.tally(ok=2)
                    assert (theirs.status, theirs.headers) == (nobodys.status, nobodys.headers)
                    assert _plain(str(theirs.body), key) == _plain(str(nobodys.body), nothing)
            assert (await _said(page, "GET", "/v1/cache/stats")).status == 501
            removed = await _said(page, "DELETE", f"/v1/cache/{own.final.cache.key}")
            assert removed.body == {"removed": 1}
            assert (await _said(page, "DELETE", "/v1/cache")).status == 200  # all of its own
            row.tally(ok=2)
        check(row, before, during)
        again = await scene.a.ask("Where is the vault?")
        assert again.final.cache.verdict == pb.CACHE_VERDICT_EXACT


def _stored(outcome: Outcome) -> str:
    return outcome.final.cache.key if outcome.final else ""


def _plain(text: str, key: str) -> str:
    return re.sub(r"[0-9a-f]{32}", "…", text.replace(key, "…"))


async def test_collections_of_another_tenant_look_like_no_collections(scene: Scene, report: Report, full_size: bool):
    number, before = 600 if full_size else 20, await honest_before(scene.c)
    async with (
        AsyncCollectionClient(scene.cache, tenant="a") as of_a,
        AsyncCollectionClient(scene.cache, tenant="b") as of_b,
    ):
        await of_b.put("notes", "notes.md", _NOTES)
        await until(lambda: _tools(scene.b), 30, holds=lambda listed: "search_notes" in str(listed))
        with report.case(47, f"A puts {number} documents into a collection, B searches its own and A's") as row:
            async with asking_beside(scene.c) as during:
                first = [await _searches(scene.b), await _tools(scene.b), await _search_of(scene.b, "search_handbook")]
                for each in range(number):
                    await of_a.put("handbook", f"{each}.md", _HANDBOOK.replace("4711", f"{4711 + each}"))
                await until(lambda: _tools(scene.a), 30, holds=lambda listed: "search_handbook" in str(listed))
                then = [await _searches(scene.b), await _tools(scene.b), await _search_of(scene.b, "search_handbook")]
                nobodys = await _search_of(scene.b, "search_nothing_")
            check(row, before, during)
            row.tally(ok=2 * len(_SEARCHES) + 2, failed=3)
            assert first == then
            assert then[-1][0] is grpc.StatusCode.INVALID_ARGUMENT
            assert then[-1] == (nobodys[0], nobodys[1].replace("search_nothing_", "search_handbook"))
            assert await of_b.documents("notes")
            assert [each.name for each in await of_b.collections()] == ["notes"]


async def _tools(caller: Asker) -> list[Any]:
    """The descriptions of a tenant's tools."""
    listed = await caller.stub.ListTools(pb.ListToolsRequest(), metadata=caller.metadata, timeout=30)
    return [listed.tools, listed.sources]


async def _search_of(caller: Asker, name: str) -> tuple[grpc.StatusCode, str]:
    outcome = await caller.ask(mesh_tools=[pb.MeshTool(name=name)])
    return outcome.code, outcome.details


async def _searches(caller: Asker) -> list[Any]:
    """The results of B's own collection for each question, with scores."""
    found = []
    for each in _SEARCHES:
        outcome = await caller.ask(each, bypass=True, budget_ms=60_000, mesh_tools=[pb.MeshTool(name="search_notes")])
        assert outcome.final, outcome
        found.append([(cited.tool, list(cited.citations)) for cited in outcome.final.citations])
    return found


async def test_a_tools_result_is_not_another_tenants(scene: Scene, report: Report, full_size: bool):
    number, before = 200 if full_size else 20, await honest_before(scene.c)
    with report.case(47, f"A has a tool called {number} times, B with the same arguments") as row:
        async with asking_beside(scene.c) as during:
            for each in range(number):
                await scene.a.ask(**_weather(each))
            again = await scene.a.ask(**_weather(0))
            assert "reused" in _actions(again)  # there is something to be had
            scene.kb.callers.clear()
            outcomes = [await scene.b.ask(**_weather(each)) for each in range(number)]
        check(row, before, during)
        row.count(*outcomes)
        assert all(outcome.ok for outcome in outcomes)
        assert not any("reused" in _actions(outcome) for outcome in outcomes)
        assert scene.kb.callers == ["b"] * number


def _weather(number: int) -> dict[str, Any]:
    called = pb.MeshTool(name="kb/weather", arguments=f'{{"day": {number}}}')
    return {"text": f"What is the weather {time.monotonic_ns()}?", "mesh_tools": [called], "bypass": True}


def _actions(outcome: Outcome) -> list[str]:
    return [made.action for made in outcome.final.decisions] if outcome.final else []
