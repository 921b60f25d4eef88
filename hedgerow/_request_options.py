"""The SDK's keywords for the options of a request, to fields of the contract, by the table of options."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hedgerow._chat_input import mapping_of
from hedgerow._errors import invalid
from hedgerow._fields import one_of, refusing, set_field, set_fields
from hedgerow._tools import MeshTool
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.request_options import Kind, RequestOption, Surface
from hedgerow.request_options.fields import (
    GUARD_ACTIONS,
    GUARDED,
    VERIFIERS,
    holder,
    set_cache,
    word_values,
)
from hedgerow.request_options.table import options_on

_OPTIONS = {option.name: option for option in options_on(Surface.SDK)}
_VALUES = {
    option.name: word_values(option, option.words)
    for option in _OPTIONS.values()
    if option.kind in (Kind.WORD, Kind.WORDS)
}


def set_options(request: pb.GenerateRequest, given: Mapping[str, Any]) -> None:
    """Set the options that are given and not None. Raises `InvalidArgument` for a value that no gateway would take, and
    `TypeError` for an option that does not exist."""
    for name in given:
        if name not in _OPTIONS:
            raise TypeError(f"a request has no option {name!r}")
    for name, option in _OPTIONS.items():
        if (value := given.get(name)) is not None:
            _SET.get(name, _set)(request, option, value)


def _set(request: pb.GenerateRequest, option: RequestOption, value: Any) -> None:
    message, field = holder(request, option)
    match option.kind:
        case Kind.WORD if value == "":  # as None
            return
        case Kind.WORD:
            setattr(message, field, _value(option, value))
        case Kind.WORDS:
            getattr(message, field).extend([_value(option, word) for word in value])
        case Kind.TEXTS:
            with refusing(option.name):
                getattr(message, field).extend([value] if isinstance(value, str) else value)
        case _:
            set_field(message, field, option.name, value)


def _value(option: RequestOption, word: str) -> Any:
    return _VALUES[option.name][one_of(option.name, word, option.words)]


def _set_cache(request: pb.GenerateRequest, option: RequestOption, word: str) -> None:
    set_cache(request.cache, _value(option, word))


def _set_cascade(request: pb.GenerateRequest, option: RequestOption, checks: Sequence[str]) -> None:
    request.cascade.SetInParent()
    request.cascade.verifiers.extend([VERIFIERS[one_of(option.name, check, option.words)] for check in checks])


def _set_at_once(request: pb.GenerateRequest, option: RequestOption, at_once: bool) -> None:
    if request.HasField("cascade"):
        request.cascade.at_once = at_once
    elif at_once:
        raise invalid(option.name, "with a cascade", "none")


def _set_guard(request: pb.GenerateRequest, option: RequestOption, guard: Mapping[str, str]) -> None:
    for thing, action in mapping_of(option.name, guard).items():
        chosen = GUARD_ACTIONS[one_of(f"guard[{thing}]", action, GUARD_ACTIONS)]
        setattr(request.guard, one_of(option.name, thing, GUARDED), chosen)


def _add_mesh_tools(request: pb.GenerateRequest, option: RequestOption, tools: Sequence[MeshTool | str]) -> None:
    for index, given in enumerate([tools] if isinstance(tools, str) else tools):
        tool, where = MeshTool(given) if isinstance(given, str) else given, f"{option.name}[{index}]"
        if bool(tool.name) == bool(tool.source):
            raise invalid(where, "a name or a source", "both" if tool.name else "neither")
        which = {"name": tool.name} if tool.name else {"source": tool.source}
        arguments = tool.arguments if isinstance(tool.arguments, str | None) else json.dumps(tool.arguments)
        asked = request.mesh_tools.add()
        set_fields(asked, f"{where}.", arguments=arguments, offered=tool.offered or None, **which)


_SET: Mapping[str, Callable[[pb.GenerateRequest, RequestOption, Any], None]] = {
    "cache": _set_cache,
    "cascade": _set_cascade,
    "cascade_at_once": _set_at_once,
    "guard": _set_guard,
    "mesh_tools": _add_mesh_tools,
}
