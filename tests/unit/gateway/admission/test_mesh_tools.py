"""Requests for tools of the mesh, and the errors for invalid ones."""

from __future__ import annotations

from typing import Any

import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.validation import check
from services.gateway.config import GatewaySettings
from services.runtime.errors import InvalidInput

SETTINGS = GatewaySettings(llm_addresses={"m": "unused"}, tools={"sources": {"kb": {"address": "unused"}}})
NEWS = pb.MeshTool(name="news")


def request(**fields: Any) -> pb.GenerateRequest:
    return pb.GenerateRequest(messages=[{"role": 2, "content": "Hello"}], **fields)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"mesh_tools": [pb.MeshTool()]}, "a name or a source, got neither"),
        ({"mesh_tools": [pb.MeshTool(name="a b")]}, "1 to 64 letters"),
        ({"mesh_tools": [pb.MeshTool(name="a", arguments="[]")]}, "a JSON object"),
        ({"mesh_tools": [pb.MeshTool(name="a", arguments="{}", offered=True)]}, "none of what is offered"),
        ({"mesh_tools": [pb.MeshTool(name="a", arguments='{"a":"%s"}' % ("x" * 20_000))]}, "at most 16384 bytes"),
        ({"mesh_tools": [NEWS] * 33}, "at most 32, got 33"),
        ({"mesh_tools": [NEWS], "prefix": "It"}, "none together with prefix"),
        (
            {"mesh_tools": [pb.MeshTool(source="kb")], "single_attempt": True},
            "none offered together with single_attempt",
        ),
        ({"tool_limits": pb.ToolLimits(calls=0)}, "tool_limits.calls: at least 1, got 0"),
    ],
)
def test_an_invalid_mesh_tool_is_refused_with_the_limit(fields: dict[str, Any], problem: str):
    with pytest.raises(InvalidInput, match=problem):
        check(request(**fields), SETTINGS)


def test_a_gateway_without_sources_has_no_tools():
    with pytest.raises(InvalidInput, match="none while no source of tools is configured"):
        check(request(mesh_tools=[NEWS]), GatewaySettings(llm_addresses={"m": "unused"}))
