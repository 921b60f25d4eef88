"""The toolbox that the settings ask for."""

from __future__ import annotations

from collections.abc import Callable

import grpc

from services.gateway.config import GatewaySettings
from services.gateway.policies.retry import Retry
from services.gateway.tools.result_cache import Reused
from services.gateway.tools.service import ToolService
from services.gateway.tools.source import ToolSource
from services.gateway.tools.source_client import SourceClient
from services.gateway.tools.toolbox import Toolbox


def make_toolbox(settings: GatewaySettings, retry: Retry, channel: Callable[[str], grpc.aio.Channel]) -> Toolbox:
    """All sources, none of them connected yet. `channel`: that of an address; `retry`: the gateway's budget."""
    reused = Reused(settings.tools.reused_bytes)
    shelves = [
        SourceClient(name, _source(name, settings, channel), settings, reused, retry) for name in settings.tools.sources
    ]
    return Toolbox(settings.tools, shelves)


def _source(name: str, settings: GatewaySettings, channel: Callable[[str], grpc.aio.Channel]) -> ToolSource:
    own = settings.tools.sources[name]
    if own.address:
        return ToolService(channel(own.address), name)
    from services.gateway.tools.mcp_source import McpSource  # half a second of CPU

    return McpSource(name, own, settings.tools)
