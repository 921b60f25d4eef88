"""The interface of every source of tools, and the sources that are gRPC services of `hedgerow.tool.v1`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import grpc
from opentelemetry.trace import Span

from hedgerow.tool.v1 import tool_pb2
from services.gateway.upstream.calls import Pending, unary, watch, whose
from services.runtime import telemetry
from services.runtime.errors import InvalidInput, Missing


@dataclass(frozen=True, slots=True)
class CallAttempt:
    """An attempt at a call, with a limit of `timeout_s`. `name` is the source's own, `arguments` the text of a JSON
    object; `key` is the same for each attempt."""

    name: str
    arguments: str
    key: str
    tenant: str
    timeout_s: float
    span: Span  # the current one while it goes on


class ToolSource(Protocol):
    """A source of tools. All methods raise `ServiceError`."""

    kind: ClassVar[str]  # for people
    per_tenant: ClassVar[bool]  # whether each tenant has a list of its own

    async def list(self, tenant: str, timeout_s: float) -> Sequence[tool_pb2.ToolDescription]:
        """The tools of the source, within `timeout_s`."""
        ...

    async def call(self, call: CallAttempt) -> tool_pb2.CallToolResponse:
        """Call a tool. Cancelling notifies the source."""
        ...

    async def run(self) -> None:
        """Keep connected, until cancelled."""
        ...


class ToolService:
    """A service of tools. `name` is for people. Each call names its tenant, and each tenant may have a list of its
    own."""

    kind: ClassVar[str] = "service"
    per_tenant: ClassVar[bool] = True

    def __init__(self, channel: grpc.aio.Channel, name: str):
        self._channel, self._name = channel, name
        self._list = unary(channel, tool_pb2, "ToolService", "ListTools")
        self._call = unary(channel, tool_pb2, "ToolService", "CallTool")

    async def list(self, tenant: str, timeout_s: float) -> Sequence[tool_pb2.ToolDescription]:
        call = self._list(tool_pb2.ListToolsRequest(), timeout=timeout_s, metadata=(whose(tenant),))
        return (await Pending(call, self._name).reply()).tools  # type: ignore[no-any-return]

    async def call(self, call: CallAttempt) -> tool_pb2.CallToolResponse:
        request = tool_pb2.CallToolRequest(name=call.name, arguments=call.arguments, idempotency_key=call.key)
        metadata = (*telemetry.propagate(call.span), whose(call.tenant))
        pending = Pending(self._call(request, timeout=call.timeout_s, metadata=metadata), self._name)
        try:
            return await pending.reply()  # type: ignore[no-any-return]
        except (InvalidInput, Missing) as error:  # what is wrong with a call, for the model
            return tool_pb2.CallToolResponse(content=error.message, failed=True)

    async def run(self) -> None:
        await watch(self._channel)
