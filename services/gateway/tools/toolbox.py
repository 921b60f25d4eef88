"""All tools of the mesh, and what a request may have of them.

A request names tools and sources of the settings, and can reach no other address. A tool that its tenant may not use is
hidden from it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import grpc

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.config import GatewaySettings
from services.gateway.policies.retry import RetryBudget
from services.gateway.settings.tools import ToolSettings
from services.gateway.tools.listing import ListedTool
from services.gateway.tools.source import ToolService, ToolSource
from services.gateway.tools.source_client import ResultCache, SourceClient
from services.runtime import strict_json
from services.runtime.errors import InvalidInput

SILENT_SOURCE = "a source that may have it has not listed its tools yet; source/name asks one source alone"
_WITHIN_SHARE = 0.2  # of an answer's time, for lists that have to be waited for


@dataclass(frozen=True, slots=True)
class Beforehand:
    """A call before any model has spoken. Without `arguments` it gets the question. Without a `tool` it is not
    known: a source that has not listed its tools yet may have it."""

    name: str
    tool: ListedTool | None
    arguments: str | None = None

    def with_question(self, question: str) -> str:
        if self.arguments is not None or self.tool is None:
            return self.arguments or "{}"
        return canonical({self.tool.description.question_argument: question})


@dataclass(frozen=True, slots=True)
class RequestTools:
    """The mesh's tools of one request. `away`: the tools that it should be offered and that no source lists now."""

    toolbox: Toolbox
    beforehand: Sequence[Beforehand] = ()
    offered: Mapping[str, ListedTool] = field(default_factory=dict)
    away: Sequence[str] = ()
    max_steps: int = 0
    max_calls: int = 0

    def descriptions(self) -> Sequence[chat_pb2.Tool]:
        """The offered tools as a model reads them."""
        return [tool.description.tool for tool in self.offered.values()]


class Toolbox:
    """The tools of all sources. A tool is known by its path, `source/name`: two sources may have tools of one name, and
    none of them stands in for the other."""

    def __init__(self, settings: ToolSettings, clients: Sequence[SourceClient] = ()):
        self.settings, self._clients = settings, {client.name: client for client in clients}

    def __bool__(self) -> bool:
        return bool(self._clients)

    async def run(self) -> None:
        """Keep all sources connected, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for client in self._clients.values():
                group.create_task(client.run())

    def client_of(self, tool: ListedTool) -> SourceClient:
        return self._clients[tool.source]

    async def list(self, tenant: Tenant, within_s: float) -> pb.ListToolsResponse:
        """A tenant's tools and the state of their sources."""
        known = await self._known(tenant, within_s, wanted=())
        listed = pb.ListToolsResponse()
        for tool in known.values():
            problem = self._clients[tool.source].why(tool, tenant.name)
            listed.tools.add(description=tool.description, source=tool.source, problem=problem)
        sources = {tool.source for tool in known.values()}
        for client in self._clients.values():
            if client.name in sources or self._may_use_some(client, tenant):
                problem = "; ".join(filter(None, [client.problem(tenant.name), _twice(client, known)]))
                listed.sources.add(name=client.name, kind=client.source.kind, problem=problem)
        return listed

    async def resolve(self, request: pb.GenerateRequest, tenant: Tenant, budget_s: float) -> RequestTools:
        """The tools that `request` names, found within a share of its budget. Raises `InvalidInput` for an unknown
        one."""
        names = [each.name for each in request.mesh_tools if each.name]
        known = await self._known(tenant, budget_s * _WITHIN_SHARE, names)
        beforehand, offered, away = [], dict[str, ListedTool](), list[str]()
        for index, each in enumerate(request.mesh_tools):
            where = f"mesh_tools[{index}]"
            if each.WhichOneof("which") == "source":
                _offer(f"{where}.source", self._all_of(f"{where}.source", each.source, known, tenant), offered)
                away += [each.source] * (each.source in self._silent(tenant))
                continue
            tool = self._named(f"{where}.name", each.name, known, tenant)
            if not each.offered:
                arguments = canonical(strict_json.loads(each.arguments)) if each.HasField("arguments") else None
                name = tool.name if tool else each.name
                beforehand.append(_beforehand(f"{where}.arguments", Beforehand(name, tool, arguments)))
            elif tool:
                _offer(f"{where}.name", [tool], offered)
            else:
                away.append(each.name)
        _check_together(request, offered, away)
        steps, calls = self._limits(request.tool_limits)
        return RequestTools(self, beforehand, offered, away, steps, calls)

    def _named(self, field: str, name: str, known: Mapping[str, ListedTool], tenant: Tenant) -> ListedTool | None:
        """The tool of this name or path; None if a source that has not been listed yet may have it. Raises
        `InvalidInput` if none has it, or more than one."""
        found = {path: tool for path, tool in known.items() if name in (path, tool.name)}
        if len(found) > 1:
            raise InvalidInput(field, f"the name of one tool alone: {' or '.join(found)}", name)
        source, slash, plain = name.rpartition("/")
        silent = [self._clients[each] for each in self._silent(tenant) if not slash or each == source]
        if any(
            plain.startswith(each.source_settings.prefix) and _permitted(f"{each.name}/{plain}", tenant)
            for each in silent
        ):
            return None
        if not found:
            raise InvalidInput(field, f"one of {', '.join(known) or 'none'}", name)
        return next(iter(found.values()))

    def _silent(self, tenant: Tenant) -> Sequence[str]:
        """The sources that have not said yet what they have for a tenant."""
        return [client.name for client in self._clients.values() if tenant.tools and not client.listed(tenant.name)]

    async def _known(self, tenant: Tenant, within_s: float, wanted: Sequence[str]) -> dict[str, ListedTool]:
        """The tools that a tenant may use, by path. For a `wanted` tool that is not found, lists are asked for
        again."""
        if not tenant.tools:
            return {}
        await self._list_sources(tenant, within_s, missing=False)
        known = self._tools(tenant)
        if set(wanted) - known.keys() - {tool.name for tool in known.values()}:
            await self._list_sources(tenant, within_s, missing=True)
            known = self._tools(tenant)
        return known

    async def _list_sources(self, tenant: Tenant, within_s: float, missing: bool) -> None:
        await asyncio.gather(*(client.listing(tenant.name, within_s, missing) for client in self._clients.values()))

    def _tools(self, tenant: Tenant) -> dict[str, ListedTool]:
        listings = filter(None, (client.listed(tenant.name) for client in self._clients.values()))
        tools = (tool for listing in listings for tool in listing.tools.values())
        return {tool.path: tool for tool in tools if _permitted(tool.path, tenant)}

    def _may_use_some(self, client: SourceClient, tenant: Tenant) -> bool:
        return any(fnmatchcase(client.name, pattern.partition("/")[0]) for pattern in tenant.tools)

    def _all_of(self, field: str, source: str, known: Mapping[str, ListedTool], tenant: Tenant) -> Sequence[ListedTool]:
        found = [tool for tool in known.values() if tool.source == source]
        client = self._clients.get(source)
        if not found and not (client and client.listed(tenant.name) is None and self._may_use_some(client, tenant)):
            sources = dict.fromkeys(tool.source for tool in known.values())
            raise InvalidInput(field, f"one of {', '.join(sources) or 'none'}", source)
        return found

    def _limits(self, asked: pb.ToolLimits) -> tuple[int, int]:
        """A request may ask for less than the settings have, and never gets more."""
        most = self.settings
        steps = min(asked.steps, most.max_steps) if asked.HasField("steps") else most.max_steps
        calls = min(asked.calls, most.max_calls) if asked.HasField("calls") else most.max_calls
        return steps, calls


def canonical(arguments: object) -> str:
    """JSON that is the same for the same value."""
    return json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _permitted(path: str, tenant: Tenant) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in tenant.tools)


def _twice(client: SourceClient, known: Mapping[str, ListedTool]) -> str:
    """The names of a source's tools that another source's tools have, too, as a problem text."""
    others = {tool.name for tool in known.values() if tool.source != client.name}
    names = [tool.name for tool in known.values() if tool.source == client.name and tool.name in others]
    return f"tools of another source have these names, too, so ask by source/name: {', '.join(names)}" if names else ""


def _offer(field: str, tools: Iterable[ListedTool], offered: dict[str, ListedTool]) -> None:
    """Add to what a model is offered, which it calls by name."""
    for tool in tools:
        other = offered.setdefault(tool.name, tool)
        if other.path != tool.path:
            raise InvalidInput(field, "tools of different names", f"{other.path} and {tool.path}")


def _beforehand(field: str, call: Beforehand) -> Beforehand:
    if call.arguments is None and call.tool and not call.tool.description.question_argument:
        raise InvalidInput(field, f"a JSON object: {call.name} takes no question as it is", "none")
    return call


def _check_together(request: pb.GenerateRequest, offered: Mapping[str, ListedTool], away: Sequence[str]) -> None:
    """Each name that the model can call must stand for one tool, which must be there."""
    own = {tool.name for tool in request.tools}
    if both := own & offered.keys():
        raise InvalidInput("tools", "none with the name of a tool of the mesh that is offered", sorted(both)[0])
    choice = request.tool_choice
    if choice.WhichOneof("choice") == "name" and choice.name not in own | offered.keys() and not away:
        raise InvalidInput("tool_choice.name", f"one of {', '.join(sorted(own | offered.keys()))}", choice.name)


def make_toolbox(settings: GatewaySettings, retry: RetryBudget, channel: Callable[[str], grpc.aio.Channel]) -> Toolbox:
    """All sources, none of them connected yet. `channel`: that of an address; `retry`: the gateway's budget."""
    results = ResultCache(settings.tools.reused_bytes)
    clients = [
        SourceClient(name, _source(name, settings, channel), settings, results, retry)
        for name in settings.tools.sources
    ]
    return Toolbox(settings.tools, clients)


def _source(name: str, settings: GatewaySettings, channel: Callable[[str], grpc.aio.Channel]) -> ToolSource:
    own = settings.tools.sources[name]
    if own.address:
        return ToolService(channel(own.address), name)
    from services.gateway.tools.mcp_source import McpSource  # half a second of CPU

    return McpSource(name, own, settings.tools)
