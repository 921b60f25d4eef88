"""The signature of a Python function, as a tool's name, description and JSON Schema."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from hedgerow._errors import InvalidArgument
from hedgerow._shapes import Unsupported, object_schema

Function = Callable[..., Any]


def described(function: Function) -> tuple[str, str, Mapping[str, Any]]:
    """Its name, its docstring, and the JSON Schema of its parameters. Raises `InvalidArgument`."""
    name = getattr(function, "__name__", type(function).__name__)
    try:
        schema = object_schema(_members(function), required(function))
    except (Unsupported, NameError) as error:
        raise _refused(name, str(error)) from None
    return name, inspect.getdoc(function) or "", schema


def _members(function: Function) -> dict[str, tuple[Any, str]]:
    return {name: (bare(kind), _description(kind)) for name, kind in kinds_of(function).items()}


def kinds_of(function: Function) -> dict[str, Any]:
    """The type of each parameter; `Any` where it has none."""
    hints = get_type_hints(function if inspect.isroutine(function) else type(function).__call__, include_extras=True)
    return {each.name: hints.get(each.name, Any) for each in _parameters(function)}


def required(function: Function) -> list[str]:
    """The parameters without a default."""
    return [each.name for each in _parameters(function) if each.default is inspect.Parameter.empty]


def _parameters(function: Function) -> Sequence[inspect.Parameter]:
    found = list(inspect.signature(function).parameters.values())
    for each in found:
        if each.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            raise Unsupported(f"parameters that have names, got {each}")
    return found


def bare(kind: Any) -> Any:
    """A type without its `Annotated`."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _description(kind: Any) -> str:
    """The text of `Annotated[str, "the city's name"]`."""
    if get_origin(kind) is not Annotated:
        return ""
    return next((each for each in get_args(kind)[1:] if isinstance(each, str)), "")


def _refused(name: str, problem: str) -> InvalidArgument:
    return InvalidArgument(f"tool {name}: {problem}", reason="INVALID_INPUT", metadata={"field": "tools", "tool": name})
