"""All tools of the mesh, and what a request may have of them.

A request names tools and sources that the settings know; nothing that it says leads anywhere else. What its tenant may
not use is to it as if it were not there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from opentelemetry.trace import Span

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.config import ToolSettings
from services.gateway.tools.listing import Tool
from services.gateway.tools.shelf import Shelf, Told, Waited
from services.runtime import strict_json
from services.runtime.errors import InvalidInput

_WITHIN_SHARE = 0.2  # of an answer's time, for lists that have to be waited for


@dataclass(frozen=True, slots=True)
class Beforehand:
    """A call before any model has spoken. Without `arguments` the question is asked; without a `tool`, nobody can say
    what it is: a source that has not been heard of may have it."""

    name: str
    tool: Tool | None
    arguments: str | None = None

    def with_question(self, question: str) -> str:
        """What the tool is called with."""
        if self.arguments is not None or self.tool is None:
            return self.arguments or "{}"
        return canonical({self.tool.description.question_argument: question})


@dataclass(frozen=True, slots=True)
class Equipment:
    """What one request has of the mesh's tools. `away`: what it was to be offered and nobody knows now."""

    beforehand: Sequence[Beforehand] = ()
    offered: Mapping[str, Tool] = field(default_factory=dict)
    away: Sequence[str] = ()
    max_steps: int = 0
    max_calls: int = 0

    def told(self) -> Sequence[chat_pb2.Tool]:
        """The offered tools as a model is told them."""
        return [tool.description.tool for tool in self.offered.values()]


class Toolbox:
    """`shelves` in the order of the settings: of two tools with one name the first one's counts."""

    def __init__(self, settings: ToolSettings, shelves: Sequence[Shelf] = ()):
        self.settings, self._shelves = settings, {shelf.name: shelf for shelf in shelves}

    def __bool__(self) -> bool:
        return bool(self._shelves)

    async def run(self) -> None:
        """Keep all sources connected, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for shelf in self._shelves.values():
                group.create_task(shelf.run())

    async def call(
        self,
        tool: Tool,
        arguments: str,
        tenant: Tenant,
        score: int,
        within_s: float,
        span: Span,
        waited: Waited = lambda: False,
    ) -> Told:
        """Have it done. `waited`: as `Shelf` has it. Raises `ServiceError`; a tool that says it cannot is no error."""
        shelf = self._shelves[tool.source]
        return await shelf.call(tool, arguments, tenant, score, within_s, span, waited)

    def call_s(self, tool: Tool) -> float:
        """How long an answer waits for a call, in seconds."""
        return self._shelves[tool.source].own.call_ms / 1000

    async def list(self, tenant: Tenant, within_s: float) -> pb.ListToolsResponse:
        """What there is for a tenant, and how it is."""
        known = await self._known(tenant, within_s, wanted=())
        listed = pb.ListToolsResponse()
        for tool in known.values():
            problem = self._shelves[tool.source].why(tool, tenant.name)
            listed.tools.add(description=tool.description, source=tool.source, problem=problem)
        sources = {tool.source for tool in known.values()}
        for shelf in self._shelves.values():
            if shelf.name in sources or self._may_use_some(shelf, tenant):
                problem = "; ".join(filter(None, [shelf.problem(tenant.name), self._hidden(shelf, known)]))
                listed.sources.add(name=shelf.name, kind=shelf.source.kind, problem=problem)
        return listed

    async def equip(self, request: pb.GenerateRequest, tenant: Tenant, budget_s: float) -> Equipment:
        """What `request` names, found within a share of its budget. Raises `InvalidInput` for what there is not."""
        names = [each.name for each in request.mesh_tools if each.name]
        known = await self._known(tenant, budget_s * _WITHIN_SHARE, names)
        silent = [shelf.name for shelf in self._shelves.values() if tenant.tools and not shelf.listed(tenant.name)]
        beforehand, offered, away = [], dict[str, Tool](), list[str]()
        for index, each in enumerate(request.mesh_tools):
            where = f"mesh_tools[{index}]"
            if each.WhichOneof("which") == "source":
                offered |= self._all_of(f"{where}.source", each.source, known, tenant)
                away += [each.source] * (each.source in silent)
                continue
            tool = known.get(each.name)
            if tool is None and not silent:
                raise InvalidInput(f"{where}.name", f"one of {', '.join(known) or 'none'}", each.name)
            if not each.offered:
                arguments = canonical(strict_json.loads(each.arguments)) if each.HasField("arguments") else None
                beforehand.append(_beforehand(f"{where}.arguments", Beforehand(each.name, tool, arguments)))
            elif tool:
                offered[tool.name] = tool
            else:
                away.append(each.name)
        _check_together(request, offered, away)
        steps, calls = self._limits(request.tool_limits)
        return Equipment(beforehand, offered, away, steps, calls)

    async def _known(self, tenant: Tenant, within_s: float, wanted: Sequence[str]) -> dict[str, Tool]:
        """The tools that a tenant may use, by name. What is `wanted` and not found is asked for once more."""
        if not tenant.tools:
            return {}
        await self._look(tenant, within_s, missing=False)
        known = dict(self._tools(tenant))
        if any(name not in known for name in wanted):
            await self._look(tenant, within_s, missing=True)
            known = dict(self._tools(tenant))
        return known

    async def _look(self, tenant: Tenant, within_s: float, missing: bool) -> None:
        await asyncio.gather(*(shelf.listing(tenant.name, within_s, missing) for shelf in self._shelves.values()))

    def _tools(self, tenant: Tenant) -> Iterator[tuple[str, Tool]]:
        found = set[str]()
        for shelf in self._shelves.values():
            listing = shelf.listed(tenant.name)
            for name, tool in listing.tools.items() if listing else ():
                if name not in found and _may_use(tool, tenant):
                    found.add(name)
                    yield name, tool

    def _hidden(self, shelf: Shelf, known: Mapping[str, Tool]) -> str:
        """Which tools of a source another has under the same name."""
        listing = shelf.listed("") if not shelf.source.per_tenant else None
        hidden = [
            name for name in (listing.tools if listing else ()) if name in known and known[name].source != shelf.name
        ]
        return f"hidden by those of another source: {', '.join(hidden)}" if hidden else ""

    def _may_use_some(self, shelf: Shelf, tenant: Tenant) -> bool:
        return any(fnmatchcase(shelf.name, pattern.partition("/")[0]) for pattern in tenant.tools)

    def _all_of(self, field: str, source: str, known: Mapping[str, Tool], tenant: Tenant) -> dict[str, Tool]:
        found = {name: tool for name, tool in known.items() if tool.source == source}
        shelf = self._shelves.get(source)
        if not found and not (shelf and shelf.listed(tenant.name) is None and self._may_use_some(shelf, tenant)):
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


def _may_use(tool: Tool, tenant: Tenant) -> bool:
    told = (tool.name, f"{tool.source}/{tool.name}")
    return any(fnmatchcase(name, pattern) for pattern in tenant.tools for name in told)


def _beforehand(field: str, call: Beforehand) -> Beforehand:
    if call.arguments is None and call.tool and not call.tool.description.question_argument:
        raise InvalidInput(field, f"a JSON object: {call.name} takes no question as it is", "none")
    return call


def _check_together(request: pb.GenerateRequest, offered: Mapping[str, Tool], away: Sequence[str]) -> None:
    """What the model can call must be one thing for each name, and there."""
    own = {tool.name for tool in request.tools}
    if both := own & offered.keys():
        raise InvalidInput("tools", "none with the name of a tool of the mesh that is offered", sorted(both)[0])
    choice = request.tool_choice
    if choice.WhichOneof("choice") == "name" and choice.name not in own | offered.keys() and not away:
        raise InvalidInput("tool_choice.name", f"one of {', '.join(sorted(own | offered.keys()))}", choice.name)
