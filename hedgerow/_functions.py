"""Python functions as tools: described by their types and docstring, and called with what a model wrote."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, is_dataclass
from functools import partial
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from hedgerow._errors import InvalidArgument, invalid
from hedgerow._shapes import Mismatch, Unsupported, build, object_schema
from hedgerow._tools import Tool, ToolCall

Function = Callable[..., Any]


def described(function: Function, *, strict: bool = False) -> Tool:
    """The tool that a function is: its name, its docstring and its parameters' types."""
    name = getattr(function, "__name__", type(function).__name__)
    try:
        schema = object_schema(_members(function), _required(function))
    except (Unsupported, NameError) as error:
        raise _refused(name, str(error)) from None
    return Tool(name, inspect.getdoc(function) or "", schema, strict)


class Functions:
    """Functions that a model may call, by their names."""

    def __init__(self, functions: Iterable[Any]):
        self._by_name: dict[str, Function] = {}
        self.tools: list[Tool] = []
        for index, function in enumerate(functions):
            if not callable(function):
                raise invalid(f"tools[{index}]", "a function, which can be called", type(function).__name__)
            tool = described(function)
            if tool.name in self._by_name:
                raise invalid("tools", "functions of different names", f"two of the name {tool.name}")
            self._by_name[tool.name] = function
            self.tools.append(tool)

    def prepared(self, call: ToolCall) -> Callable[[], Any]:
        """A call of a model's, ready to be made. Raises `ValueError` where its arguments are not of the function's
        types: that is for the model to know."""
        function = self._by_name[call.name]
        given, kinds = call.parsed(), _kinds(function)
        if not isinstance(given, dict):
            raise Mismatch(f"arguments: an object, got {given!r}")
        if unknown := given.keys() - kinds.keys():
            raise Mismatch(f"arguments: no parameter {min(unknown)}")
        if missing := [name for name in _required(function) if name not in given]:
            raise Mismatch(f"arguments: the parameter {missing[0]}, got none")
        return partial(function, **{name: build(_bare(kinds[name]), value, name) for name, value in given.items()})


def as_text(result: Any) -> str:
    """What a function returned, for a model: a text as it is, anything else as JSON."""
    if isinstance(result, str):
        return result
    if hasattr(result, "model_dump_json"):
        return str(result.model_dump_json())
    return json.dumps(result, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def _members(function: Function) -> dict[str, tuple[Any, str]]:
    return {name: (_bare(kind), _description(kind)) for name, kind in _kinds(function).items()}


def _kinds(function: Function) -> dict[str, Any]:
    """The type of each parameter; `Any` where it has none."""
    hints = get_type_hints(function if inspect.isroutine(function) else type(function).__call__, include_extras=True)
    return {each.name: hints.get(each.name, Any) for each in _parameters(function)}


def _required(function: Function) -> list[str]:
    return [each.name for each in _parameters(function) if each.default is inspect.Parameter.empty]


def _parameters(function: Function) -> Sequence[inspect.Parameter]:
    found = list(inspect.signature(function).parameters.values())
    for each in found:
        if each.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            raise Unsupported(f"parameters that have names, got {each}")
    return found


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _description(kind: Any) -> str:
    """The text of `Annotated[str, "the city's name"]`."""
    if get_origin(kind) is not Annotated:
        return ""
    return next((each for each in get_args(kind)[1:] if isinstance(each, str)), "")


def _refused(name: str, problem: str) -> InvalidArgument:
    return InvalidArgument(f"tool {name}: {problem}", reason="INVALID_INPUT", metadata={"field": "tools", "tool": name})
