"""Python functions as tools: described by their types and docstring, and called with what a model wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, is_dataclass
from functools import partial
from typing import Any

from hedgerow._errors import invalid
from hedgerow._shapes import Mismatch, build
from hedgerow._signature import Function, bare, kinds_of, required
from hedgerow._tools import Tool, ToolCall


class Functions:
    """Functions that a model may call, by their names."""

    def __init__(self, functions: Iterable[Any]):
        self._by_name: dict[str, Function] = {}
        self.tools: list[Tool] = []
        for index, function in enumerate(functions):
            if not callable(function):
                raise invalid(f"tools[{index}]", "a function, which can be called", type(function).__name__)
            tool = Tool.from_function(function)
            if tool.name in self._by_name:
                raise invalid("tools", "functions of different names", f"two of the name {tool.name}")
            self._by_name[tool.name] = function
            self.tools.append(tool)

    def prepared(self, call: ToolCall) -> Callable[[], Any]:
        """A call of a model's, ready to be made. Raises `ValueError` where its arguments are not of the function's
        types: that is for the model to know."""
        function = self._by_name[call.name]
        given, kinds = call.parsed(), kinds_of(function)
        if not isinstance(given, dict):
            raise Mismatch(f"arguments: an object, got {given!r}")
        if unknown := given.keys() - kinds.keys():
            raise Mismatch(f"arguments: no parameter {min(unknown)}")
        if missing := [name for name in required(function) if name not in given]:
            raise Mismatch(f"arguments: the parameter {missing[0]}, got none")
        return partial(function, **{name: build(bare(kinds[name]), value, name) for name, value in given.items()})


def as_text(result: Any) -> str:
    """What a function returned, for a model: a text as it is, anything else as JSON."""
    if isinstance(result, str):
        return result
    if hasattr(result, "model_dump_json"):
        return str(result.model_dump_json())
    return json.dumps(result, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)
