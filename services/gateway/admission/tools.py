"""What a request may offer a model as tools. Their schemas are bounded as those of response formats are: an engine that
has to call one makes a grammar of them."""

from __future__ import annotations

from collections.abc import Iterable

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission import constraint
from services.gateway.config import ConstraintSettings
from services.runtime.errors import InvalidInput
from services.runtime.limits import TOOL_NAME, TOOLS

_MODES = frozenset(chat_pb2.ToolMode.values())


def check(request: pb.GenerateRequest, limits: ConstraintSettings) -> int:
    """Raise `InvalidInput` for the first thing about the tools that cannot be served. Returns their size in bytes."""
    tools, names = request.tools, set[str]()
    if len(tools) > TOOLS:
        raise InvalidInput("tools", f"at most {TOOLS}", len(tools))
    for index, tool in enumerate(tools):
        if not TOOL_NAME.fullmatch(tool.name):
            raise InvalidInput(f"tools[{index}].name", "1 to 64 letters, digits, _ and -", repr(tool.name))
        if tool.name in names:
            raise InvalidInput(f"tools[{index}].name", "one tool of each name", tool.name)
        names.add(tool.name)
        if tool.parameters:
            constraint.check_schema(f"tools[{index}].parameters", tool.parameters, limits)
    _check_choice(request, names)
    total = size(tools)
    if must_call(request) and total > limits.max_bytes:
        raise InvalidInput("tools", f"at most {limits.max_bytes} bytes where one must be called", f"{total} bytes")
    return total


def must_call(request: pb.GenerateRequest) -> bool:
    """Whether the answer is a call, whatever the model would rather do."""
    choice = request.tool_choice
    return choice.WhichOneof("choice") == "name" or choice.mode == chat_pb2.TOOL_MODE_REQUIRED


def size(tools: Iterable[chat_pb2.Tool]) -> int:
    """Of all that is written in them, in bytes of UTF-8."""
    return sum(len(text.encode()) for tool in tools for text in (tool.name, tool.description, tool.parameters))


def _check_choice(request: pb.GenerateRequest, names: set[str]) -> None:
    choice = request.tool_choice
    if choice.WhichOneof("choice") == "name" and choice.name not in names:
        raise InvalidInput("tool_choice.name", f"one of {', '.join(sorted(names)) or 'no tools'}", choice.name)
    if choice.mode not in _MODES:
        raise InvalidInput("tool_choice.mode", "a ToolMode, 0 to 3", choice.mode)
    if must_call(request) and not names:
        raise InvalidInput("tool_choice", "none without tools", "a tool that must be called")
    if must_call(request) and request.HasField("response_format"):
        raise InvalidInput("tool_choice", "no tool that must be called beside a response_format", "both")
