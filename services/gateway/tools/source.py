"""The one shape of whoever has tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from opentelemetry.trace import Span

from hedgerow.tool.v1 import tool_pb2


@dataclass(frozen=True, slots=True)
class Call:
    """One attempt at a call, which may take `timeout_s`. `name` is the source's own, `arguments` the text of a JSON
    object; `key` is the same for each attempt."""

    name: str
    arguments: str
    key: str
    tenant: str
    timeout_s: float
    span: Span  # the current one while it goes on


class ToolSource(Protocol):
    """Where tools come from. Everything raises `ServiceError`."""

    kind: ClassVar[str]  # for people
    per_tenant: ClassVar[bool]  # whether each tenant has a list of its own

    async def list(self, tenant: str, timeout_s: float) -> Sequence[tool_pb2.ToolDescription]:
        """What there is, within `timeout_s`."""
        ...

    async def call(self, call: Call) -> tool_pb2.CallToolResponse:
        """Have it done. Cancelling it tells the source."""
        ...

    async def run(self) -> None:
        """Keep connected, until cancelled."""
        ...
