"""The limits of a request's tools. Their schemas are bounded as those of response formats are, because an engine that
has to call a tool makes a grammar of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission import constraint
from services.gateway.settings.response_format import ConstraintSettings
from services.gateway.settings.tools import ToolSettings
from services.runtime import strict_json
from services.runtime.errors import InvalidInput
from services.runtime.limits import MESH_TOOL_NAME, MESH_TOOLS, TOOL_NAME, TOOLS

_LEVELS = 200  # of arguments: MCP's SDK writes 255, with those around them
OBJECT = f"a JSON object of at most {_LEVELS} levels"
_MODES = frozenset(chat_pb2.ToolMode.values())


def check(request: pb.GenerateRequest, limits: ConstraintSettings) -> int:
    """Raise `InvalidInput` for the first thing about the tools that cannot be served. Returns their size in bytes."""
    tools, names = request.tools, set[str]()
    if len(tools) > TOOLS:
        raise InvalidInput("tools", f"at most {TOOLS}", len(tools))
    for index, tool in enumerate(tools):
        if not TOOL_NAME.fullmatch(tool.name):
            raise InvalidInput(f"tools[{index}].name", "1 to 128 letters, digits, _ and -", repr(tool.name))
        if tool.name in names:
            raise InvalidInput(f"tools[{index}].name", "one tool of each name", tool.name)
        names.add(tool.name)
        if tool.parameters:
            constraint.check_schema(f"tools[{index}].parameters", tool.parameters, limits)
    _check_choice(request, names, mesh=offers_mesh_tools(request))
    total = size(tools)
    if must_call(request) and total > limits.max_bytes:
        raise InvalidInput("tools", f"at most {limits.max_bytes} bytes where one must be called", f"{total} bytes")
    return total


def check_mesh(request: pb.GenerateRequest, settings: ToolSettings) -> int:
    """The same for the tools of the mesh, as far as the request alone shows. Which tools exist for its tenant is
    checked later (`tools/toolbox.py`)."""
    asked = request.mesh_tools
    if not asked:
        return 0
    if not settings.sources:
        raise InvalidInput("mesh_tools", "none while no source of tools is configured", len(asked))
    if len(asked) > MESH_TOOLS:
        raise InvalidInput("mesh_tools", f"at most {MESH_TOOLS}", len(asked))
    if request.prefix:
        raise InvalidInput("mesh_tools", "none together with prefix", len(asked))
    if request.single_attempt and offers_mesh_tools(request):
        raise InvalidInput(
            "mesh_tools", "none offered together with single_attempt: the model is called again", len(asked)
        )
    return sum(_check_mesh_tool(f"mesh_tools[{index}]", each, settings) for index, each in enumerate(asked))


def offers_mesh_tools(request: pb.GenerateRequest) -> bool:
    """Whether a model may call tools of the mesh."""
    return any(each.offered or each.source for each in request.mesh_tools)


def _check_mesh_tool(where: str, asked: pb.MeshTool, settings: ToolSettings) -> int:
    if not (asked.name or asked.source):
        raise InvalidInput(where, "a name or a source", "neither")
    if asked.name and not all(map(MESH_TOOL_NAME.fullmatch, asked.name.split("/", 1))):
        limit = "1 to 64 letters, digits, _ and -, or source/name of them"
        raise InvalidInput(f"{where}.name", limit, repr(asked.name))
    if not asked.HasField("arguments"):
        return 0
    if asked.offered or asked.source:
        raise InvalidInput(f"{where}.arguments", "none of what is offered", "some")
    size = len(asked.arguments.encode())
    if size > settings.max_arguments_bytes:
        raise InvalidInput(f"{where}.arguments", f"at most {settings.max_arguments_bytes} bytes", f"{size} bytes")
    if not is_object(asked.arguments):
        raise InvalidInput(f"{where}.arguments", OBJECT, asked.arguments)
    return size


def is_object(text: str) -> bool:
    """Whether a text is a JSON object that any source of tools can be sent."""
    try:
        parsed = strict_json.loads(text)
    except ValueError:
        return False
    return isinstance(parsed, dict) and not _is_deep(parsed)


def _is_deep(parsed: dict[str, Any]) -> bool:
    level: list[Any] = [parsed]
    for _ in range(_LEVELS):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [each for values in inner for each in values if isinstance(each, dict | list)]
    return bool(level)


def must_call(request: pb.GenerateRequest) -> bool:
    """Whether the answer is a call, whatever the model would rather do."""
    choice = request.tool_choice
    return choice.WhichOneof("choice") == "name" or choice.mode == chat_pb2.TOOL_MODE_REQUIRED


def size(tools: Iterable[chat_pb2.Tool]) -> int:
    """The size of all texts in the tools, in bytes of UTF-8."""
    return sum(len(text.encode()) for tool in tools for text in (tool.name, tool.description, tool.parameters))


def _check_choice(request: pb.GenerateRequest, names: set[str], *, mesh: bool) -> None:
    """`mesh`: whether there are names besides."""
    choice = request.tool_choice
    if choice.WhichOneof("choice") == "name" and choice.name not in names and not mesh:
        raise InvalidInput("tool_choice.name", f"one of {', '.join(sorted(names)) or 'no tools'}", choice.name)
    if choice.mode not in _MODES:
        raise InvalidInput("tool_choice.mode", "a ToolMode, 0 to 3", choice.mode)
    if must_call(request) and not names and not mesh:
        raise InvalidInput("tool_choice", "none without tools", "a tool that must be called")
    # A provider that gets the caller's own words says itself whether it takes both; any other model refuses them.
    if must_call(request) and request.HasField("response_format") and not (mesh or request.original.api):
        raise InvalidInput("tool_choice", "no required tool call together with a response_format", "both")
