"""Tools that a request offers a model or has the mesh call, and the errors for invalid ones."""

from __future__ import annotations

import json
from typing import Any

import mcp_types
import pytest

from hedgerow.chat.v1.chat_pb2 import API_RESPONSES, TOOL_MODE_REQUIRED, Original, ResponseFormat, Tool, ToolChoice
from hedgerow.gateway.v1.gateway_pb2 import GenerateRequest, MeshTool, ToolLimits
from services.gateway.admission import tools, validation
from services.gateway.config import GatewaySettings
from services.gateway.settings.response_format import ConstraintSettings
from services.runtime.errors import InvalidInput

LIMITS = ConstraintSettings(max_bytes=1_000)
CLOCK = Tool(name="clock", description="Tells the time.", parameters='{"type": "object"}')
LARGE = Tool(name="large", parameters=json.dumps({"description": "x" * 900}))
ANY = ToolChoice(mode=TOOL_MODE_REQUIRED)


def check(*given: Tool, **fields: object) -> int:
    return tools.check(GenerateRequest(tools=given, **fields), LIMITS)


def test_tools_are_admitted_with_and_without_a_choice():
    assert check() == 0
    assert check(CLOCK) == len("clock" + "Tells the time." + '{"type": "object"}')
    check(CLOCK, Tool(name="no-arguments"), tool_choice=ToolChoice(name="clock"), parallel_tool_calls=False)
    check(CLOCK, tool_choice=ANY)
    assert check(LARGE, Tool(name="s", description="x" * 200)) > LIMITS.max_bytes, (
        "tools that need not be called may be large"
    )
    # a provider's own API says whether a forced call may stand beside a form
    check(CLOCK, tool_choice=ANY, response_format=ResponseFormat(regex="a"), original=Original(api=API_RESPONSES))


@pytest.mark.parametrize(
    ("given", "fields", "message"),
    [
        ([Tool(name="a b")], {}, r"tools\[0\]\.name: 1 to 128 letters, digits, _ and -, got 'a b'"),
        ([CLOCK, CLOCK], {}, r"tools\[1\]\.name: one tool of each name, got clock"),
        ([Tool(name=f"t{n}") for n in range(513)], {}, "tools: at most 512, got 513"),
        ([Tool(name="t", parameters="[]")], {}, r"tools\[0\]\.parameters: a JSON object, got list"),
        ([Tool(name="t", parameters="{")], {}, r"tools\[0\]\.parameters: JSON \("),
        ([Tool(name="t", parameters='{"$ref": "http://x"}')], {}, r"tools\[0\]\.parameters: \$ref: to a place in"),
        ([Tool(name="t", parameters=" " * 1_001)], {}, r"tools\[0\]\.parameters: at most 1000 bytes, got 1001 bytes"),
        ([CLOCK], {"tool_choice": ToolChoice(name="watch")}, "tool_choice.name: one of clock, got watch"),
        ([CLOCK], {"tool_choice": ToolChoice(mode=9)}, "tool_choice.mode: a ToolMode, 0 to 3, got 9"),
        ([], {"tool_choice": ANY}, "tool_choice: none without tools, got a tool that must be called"),
        (
            [CLOCK],
            {"tool_choice": ANY, "response_format": ResponseFormat(regex="a")},
            "together with a response_format",
        ),
        ([LARGE, Tool(name="s", description="x" * 200)], {"tool_choice": ANY}, "tools: at most 1000 bytes where one"),
    ],
)
def test_tools_that_cannot_be_served_are_refused(given: list[Tool], fields: dict[str, object], message: str):
    with pytest.raises(InvalidInput, match=message):
        check(*given, **fields)


SETTINGS = GatewaySettings(llm_addresses={"m": "unused"}, tools={"sources": {"kb": {"address": "unused"}}})
NEWS = MeshTool(name="news")


def request(**fields: Any) -> GenerateRequest:
    return GenerateRequest(messages=[{"role": 2, "content": "Hello"}], **fields)


def nested(levels: int) -> str:
    """A JSON object, with arrays in it."""
    return '{"a": ' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"mesh_tools": [MeshTool()]}, "a name or a source, got neither"),
        ({"mesh_tools": [MeshTool(name="a b")]}, "1 to 64 letters"),
        ({"mesh_tools": [MeshTool(name="a", arguments="[]")]}, "a JSON object"),
        ({"mesh_tools": [MeshTool(name="a", arguments=nested(201))]}, "a JSON object of at most 200 levels"),
        ({"mesh_tools": [MeshTool(name="a", arguments="{}", offered=True)]}, "none of what is offered"),
        ({"mesh_tools": [MeshTool(name="a", arguments='{"a":"%s"}' % ("x" * 20_000))]}, "at most 16384 bytes"),
        ({"mesh_tools": [NEWS] * 33}, "at most 32, got 33"),
        ({"mesh_tools": [NEWS], "prefix": "It"}, "none together with prefix"),
        ({"mesh_tools": [MeshTool(source="kb")], "single_attempt": True}, "none offered together with single_attempt"),
        ({"tool_limits": ToolLimits(calls=0)}, "tool_limits.calls: at least 1, got 0"),
    ],
)
def test_an_invalid_mesh_tool_is_refused_with_the_limit(fields: dict[str, Any], problem: str):
    with pytest.raises(InvalidInput, match=problem):
        validation.check(request(**fields), SETTINGS)


def test_arguments_may_be_nested_as_deep_as_an_mcp_server_can_be_sent_them():
    deep = nested(200)
    validation.check(request(mesh_tools=[MeshTool(name="a", arguments=deep)]), SETTINGS)
    asked = mcp_types.CallToolRequestParams(name="a", arguments=json.loads(deep))
    assert json.loads(asked.model_dump_json())["arguments"] == json.loads(deep)


def test_a_gateway_without_sources_has_no_tools():
    with pytest.raises(InvalidInput, match="none while no source of tools is configured"):
        validation.check(request(mesh_tools=[NEWS]), GatewaySettings(llm_addresses={"m": "unused"}))
