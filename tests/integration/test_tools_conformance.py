"""The conformance suite of MCP: its servers are sources of a real gateway, and it judges what came to them.

The suite runs a client for each scenario and gives it the server's address. Ours hands that over and waits, so there is
one gateway, with the servers of all scenarios behind it.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hedgerow import AsyncClient, ListedTool, MeshTool
from tests.conftest import starting
from tests.integration.calling_llm import QUESTION, calling_llm, start_gateway
from tests.integration.foreign_clients import SCRIPTS, Installed, output
from tests.waiting import until

# The first run fetches packages.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

HANDED_OVER = SCRIPTS / "mcp_conformance/handed_over.js"
WITHIN_S = 60.0
WHOLE = (
    *("initialize", "tools_call", "sse-retry", "request-metadata"),
    *("http-standard-headers", "http-custom-headers", "http-invalid-tool-headers"),
    *("json-schema-ref-no-deref", "json-schema-2020-12-preservation"),
)
# Servers that ask their client something: the gateway has no user to ask, so only a part of them applies.
IN_PART = "sep-2322-client-request-state"
NOT_OURS = ("elicitation-", "auth/", "sep-2640-")  # docs/tools.md names them
TOOLS = {
    *("add_numbers", "test_reconnection", "test_headers", "my-hyphenated-tool", "test_custom_headers"),
    *("test_custom_headers_null", "valid_tool", "json_schema_2020_12_tool", "json_schema_echo"),
    *("test_mrtr_echo_state", "test_mrtr_no_state", "test_mrtr_unrelated", "test_mrtr_no_result_type"),
}


class Suite:
    """As npm installs it, with the Node that it needs."""

    def __init__(self) -> None:
        modules = Installed().node("mcp_conformance")
        own = modules / ".bin/node"  # npm has it for Linux
        self.node = own if own.exists() else Path(shutil.which("node") or "node")
        self.command = (self.node, modules / "@modelcontextprotocol/conformance/dist/index.js")

    @asynccontextmanager
    async def serving(self, scenario: str, folder: Path) -> AsyncIterator[Served]:
        """The scenario's server, and in `folder`, its own, the reports about it."""
        call: asyncio.Future[tuple[dict[str, Any], asyncio.StreamWriter]] = asyncio.get_running_loop().create_future()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            call.set_result((json.loads(await reader.readline()), writer))

        client = shlex.join(map(str, (self.node, HANDED_OVER, folder / "socket")))
        async with await asyncio.start_unix_server(take, folder / "socket"):
            process = await asyncio.create_subprocess_exec(
                *(*self.command, "client", "--scenario", scenario, "--output-dir", folder, "--command", client),
                *("--timeout", str(round(WITHIN_S * 1000))),
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=PIPE,
            )
            try:
                async with asyncio.timeout(WITHIN_S):
                    server, client_is_there = await call
                yield Served(process, folder, server["url"], server["context"].get("toolCalls", []), client_is_there)
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()


@dataclass(frozen=True)
class Served:
    """A server that waits for what a client does. `wanted`: the calls that the suite wants made."""

    process: Process
    folder: Path
    url: str
    wanted: list[dict[str, Any]]
    client: asyncio.StreamWriter

    async def judged(self) -> Verdict:
        """After its client has left."""
        self.client.close()
        async with asyncio.timeout(WITHIN_S):
            _, said = await self.process.communicate()
        (checks,) = self.folder.glob("*/checks.json")
        statuses = [(check["id"], check["status"]) for check in json.loads(checks.read_text())]
        return Verdict(self.process.returncode == 0, said.decode(), statuses)


@dataclass(frozen=True)
class Verdict:
    """`passed` is the suite's own."""

    passed: bool
    said: str
    checks: list[tuple[str, str]]

    def having(self, status: str) -> set[str]:
        return {name for name, each in self.checks if each == status}


@dataclass(frozen=True)
class Judged:
    """The reports of all servers. `read`: all results as the model got them."""

    verdicts: dict[str, Verdict]
    read: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """After one question to a gateway, with all tools that it lists."""
    logs = tmp_path_factory.mktemp("logs")
    suite = Suite()
    async with AsyncExitStack() as servers:
        starts = [
            servers.enter_async_context(suite.serving(name, tmp_path_factory.mktemp(name)))
            for name in (*WHOLE, IN_PART)
        ]
        served = dict(zip((*WHOLE, IN_PART), await asyncio.gather(*starts), strict=True))
        async with calling_llm() as llm, starting(logs) as start:
            sources = {name: {"url": server.url, "call_ms": 20_000} for name, server in served.items()}
            gateway = await start_gateway(start, llm, sources, stage_caps_ms='{"tools": 20000}')
            async with AsyncClient(gateway) as client:
                tools = await _listed(client)
                wanted = [call for server in served.values() for call in server.wanted]
                await client.ask(QUESTION, mesh_tools=_calls(tools, wanted), budget_ms=60_000)
        # The gateway has ended: the servers wait until no client is connected.
        return Judged({name: await server.judged() for name, server in served.items()}, llm.read)


async def _listed(client: AsyncClient) -> list[ListedTool]:
    """When all servers have listed what they have."""

    def all_there(page: Any) -> bool:
        tools, sources = page
        listed = all(not source.problem or "left out" in source.problem for source in sources)
        return listed and {tool.name for tool in tools} >= TOOLS

    tools, _ = await until(client.tools, holds=all_there)
    return list(tools)


def _calls(tools: list[ListedTool], wanted: list[dict[str, Any]]) -> list[MeshTool]:
    """A call of every tool, those that should not have been listed too."""
    schemas = {tool.name: json.loads(tool.parameters) for tool in tools}
    arguments = {
        "add_numbers": {"a": 2, "b": 3},
        "valid_tool": {"region": "us-west1"},
        "json_schema_echo": {"schema": schemas["json_schema_2020_12_tool"]},
        **{call["name"]: call["arguments"] for call in wanted},
    }
    return [MeshTool(name, arguments.get(name, {})) for name in schemas]


@pytest.mark.parametrize("scenario", WHOLE)
async def test_the_suite_passes_what_the_gateway_does_as_a_client(judged: Judged, scenario: str) -> None:
    verdict = judged.verdicts[scenario]
    assert verdict.passed, verdict.said
    assert verdict.having("SUCCESS")


async def test_results_reach_the_model(judged: Judged) -> None:
    for result in (
        "The sum of 2 and 3 is 5",
        "Reconnection test completed successfully",
        "Custom headers test completed",
    ):
        assert f"\n{result}\n</tool_result>" in judged.read


async def test_an_elicitation_of_a_server_is_declined_and_costs_its_other_tools_nothing(
    judged: Judged,
) -> None:
    verdict = judged.verdicts[IN_PART]
    assert verdict.having("SUCCESS") == {
        "sep-2322-client-parallel-isolation",
        "sep-2322-default-result-type-complete",
    }, verdict.said
    for tool in ("test_mrtr_echo_state", "test_mrtr_no_state"):
        assert f"{tool} failed: Elicitation not supported\n" in judged.read
    for result in ("unrelated-ok", "no-result-type-test-ok"):
        assert f"\n{result}\n</tool_result>" in judged.read


async def test_each_scenario_of_the_suite_is_tried_or_known_to_be_about_something_else() -> None:
    code, out, _ = await output(*Suite().command, "list")
    assert code == 0
    _, _, ours = out.partition("Client scenarios")
    ours, _, _ = ours.partition("\n\n")
    scenarios = {line.split()[1] for line in ours.splitlines() if line.startswith("  - ")}
    assert {name for name in scenarios if not name.startswith(NOT_OURS)} == {*WHOLE, IN_PART}
