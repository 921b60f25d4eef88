"""A source of tools that plays scripts, and the calls that models make of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from hedgerow.tool.v1 import tool_pb2
from services.gateway.policies.retry import RetryBudget
from services.gateway.tools.source import CallAttempt
from services.gateway.tools.source_client import ResultCache, SourceClient
from services.gateway.tools.toolbox import Toolbox
from services.runtime.errors import ServiceError, TooLate
from tests.clock import loop_clock
from tests.unit.gateway.scripted import InOrder, finish
from tests.unit.gateway.shared_settings import gateway_settings

Said = str | ServiceError | tool_pb2.CallToolResponse


def tool_response(content: str, *citations: str, failed: bool = False) -> tool_pb2.CallToolResponse:
    found = [tool_pb2.Citation(source=source, title=source.upper(), text=content, score=1) for source in citations]
    return tool_pb2.CallToolResponse(content=content, failed=failed, citations=found)


class ScriptedTools:
    """The result of each tool after some seconds, by its name; records calls, and which were cancelled."""

    kind, per_tenant = "scripted", False

    def __init__(self, **says: tuple[float, Said]):
        self.says = says
        self.extras: dict[str, dict[str, object]] = {}  # of a tool's description, by name
        self.calls: list[CallAttempt] = []
        self.cancelled: list[str] = []
        self.away: ServiceError | None = None
        self.list_s = 0.0

    async def list(self, tenant: str, timeout_s: float) -> Sequence[tool_pb2.ToolDescription]:
        await asyncio.sleep(self.list_s)
        if self.away:
            raise self.away
        return [
            tool_pb2.ToolDescription(
                **{"tool": {"name": name}, "question_argument": "query", **self.extras.get(name, {})}
            )
            for name in self.says
        ]

    async def call(self, call: CallAttempt) -> tool_pb2.CallToolResponse:
        self.calls.append(call)
        pause_s, said = self.says[call.name]
        try:
            await asyncio.sleep(min(pause_s, call.timeout_s))
        except asyncio.CancelledError:
            self.cancelled.append(call.name)
            raise
        if pause_s > call.timeout_s:
            raise TooLate(f"{call.name}: late")
        if isinstance(said, ServiceError):
            raise said
        return tool_response(said) if isinstance(said, str) else said

    async def run(self) -> None:
        await asyncio.Event().wait()


def toolbox(*sources: ScriptedTools, **settings: object) -> Toolbox:
    """Sources `kb`, `kb2`, … that `settings` are given to; `own` of them goes to each source."""
    own = settings.pop("own", {})
    assert isinstance(own, Mapping)
    named = {f"kb{number or ''}": source for number, source in enumerate(sources)}
    described = {name: {"address": "unused", **own} for name in named}
    rest = {name: settings.pop(name) for name in ("breaker", "expected") if name in settings}
    whole = gateway_settings(llm_addresses={"unused": "unused"}, **rest, tools={"sources": described, **settings})
    results, retry = ResultCache(whole.tools.reused_bytes, loop_clock), RetryBudget(1, 10, 0, InOrder())
    keys = iter(f"key-{number}" for number in range(1_000))
    clients = [
        SourceClient(name, source, whole, results, retry, loop_clock, lambda: next(keys))
        for name, source in named.items()
    ]
    return Toolbox(whole.tools, clients)


def calls(*wanted: tuple[str, object]) -> llm_pb2.GenerateResponse:
    """A model's turn that calls tools by name, with these arguments."""
    turn = finish(reason=chat_pb2.FINISH_REASON_TOOL_CALLS)
    for index, (name, arguments) in enumerate(wanted):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        turn.tool_calls.add(index=index, id=f"call_{index}", name=name, arguments=text)
    return turn
