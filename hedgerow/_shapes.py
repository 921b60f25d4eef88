"""Python's types as JSON Schemas, and JSON's values as those types: for answers that are parsed, and for tools.

Covers what a form for a model needs: texts, numbers, truth values, None, `Any`, `Literal`, enums, unions, lists, tuples
of any length, mappings from text, dataclasses, and pydantic's models, which bring their own schema. Pydantic is not
imported: a class with its two methods is one of its models.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_PLAIN: Mapping[Any, str] = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_LISTS = (list, tuple, Sequence)
_MAPPINGS = (dict, Mapping)


class Unsupported(ValueError):
    """A type that has no schema. The text says which one, and where."""


class Mismatch(ValueError):
    """A value that is not of its type. The text says where."""


def is_pydantic(kind: Any) -> bool:
    """Whether it is a model of pydantic's."""
    return isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate_json")


def schema_of(kind: Any, path: str = "") -> dict[str, Any]:
    """The JSON Schema of a type. Raises `Unsupported`."""
    if is_pydantic(kind):
        return _pydantic_schema(kind, path)
    if kind is Any:
        return {}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if dataclasses.is_dataclass(kind):
        return _object_of(kind, path)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(each, path) for each in arguments]}
    if (items := _items(kind)) is not None:
        return {"type": "array", "items": schema_of(items, f"{path}[]")}
    if (values := _values(kind)) is not None:
        return {"type": "object", "additionalProperties": schema_of(values, f"{path}{{}}")}
    raise Unsupported(f"{path or 'the type'}: a dataclass, a pydantic model or a type of JSON, got {kind!r}")


def object_schema(members: Mapping[str, tuple[Any, str]], required: Sequence[str], path: str = "") -> dict[str, Any]:
    """The schema of an object with these members: their types and descriptions by their names."""
    properties = {}
    for name, (kind, description) in members.items():
        annotations = {"description": description} if description else {}
        properties[name] = {**schema_of(kind, f"{path}.{name}".lstrip(".")), **annotations}
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def parse(kind: Any, text: str) -> Any:
    """JSON text as a value of a type that `schema_of` knows. Raises `ValueError`, of which pydantic's is one."""
    if is_pydantic(kind):
        return kind.model_validate_json(text)
    return build(kind, loads(text), "")


def loads(text: str) -> Any:
    """The value of JSON text. Raises `ValueError`, also for one that is nested too deeply for Python."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def build(kind: Any, value: Any, path: str) -> Any:
    """A value of JSON's as one of a type's. Raises `Mismatch` or, of a pydantic model, a `ValueError` of its own."""
    if is_pydantic(kind):
        return kind.model_validate(value)
    if kind is Any:
        return value
    if kind in _PLAIN:
        return _plain(kind, value, path)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _checked(kind, value, path)
    if dataclasses.is_dataclass(kind):
        return _made(kind, value, path)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        if any(value == each and type(value) is type(each) for each in arguments):
            return value
        raise Mismatch(f"{path or 'the value'}: one of {', '.join(map(repr, arguments))}, got {value!r}")
    if origin in (Union, types.UnionType):
        return _first(arguments, value, path)
    if (items := _items(kind)) is not None:
        found = [build(items, each, f"{path}[{index}]") for index, each in enumerate(_of(list, value, path))]
        return tuple(found) if origin is tuple else found
    values = _values(kind)
    return {name: build(values, each, f"{path}.{name}") for name, each in _of(dict, value, path).items()}


def _pydantic_schema(kind: Any, path: str) -> dict[str, Any]:
    schema = dict(kind.model_json_schema())
    if path and "$defs" in schema:  # its references count from the root
        raise Unsupported(f"{path}: a pydantic model without models in it, got {kind.__name__}")
    return schema


def _items(kind: Any) -> Any:
    """The type of a list's items; None for another type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _LISTS:
        return Any
    if origin is tuple:
        return arguments[0] if len(arguments) == 2 and arguments[1] is Ellipsis else None
    return arguments[0] if origin in _LISTS else None


def _values(kind: Any) -> Any:
    """The type of a mapping's values, with text as keys; None for another type."""
    if kind in _MAPPINGS:
        return Any
    arguments = get_args(kind)
    return arguments[1] if get_origin(kind) in _MAPPINGS and arguments[0] is str else None


def _fields(kind: Any) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    """The fields that its constructor takes, with their types."""
    try:
        hints = get_type_hints(kind)
    except NameError as error:
        raise Unsupported(f"{kind.__name__}: types that can be read at its module's level, got {error}") from None
    return ((each, hints[each.name]) for each in dataclasses.fields(kind) if each.init)


def _object_of(kind: Any, path: str) -> dict[str, Any]:
    if path.count(".") > _DEEPEST:
        raise Unsupported(f"{path}: at most {_DEEPEST} levels, got a type that holds itself or more")
    members = {each.name: (hint, str(each.metadata.get("description", ""))) for each, hint in _fields(kind)}
    return object_schema(members, [each.name for each, _ in _fields(kind) if _is_required(each)], path)


_DEEPEST = 16


def _is_required(each: dataclasses.Field[Any]) -> bool:
    return each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING


def _made(kind: Any, value: Any, path: str) -> Any:
    given, members = _of(dict, value, path), {each.name: (each, hint) for each, hint in _fields(kind)}
    if unknown := given.keys() - members.keys():
        raise Mismatch(f"{path or kind.__name__}: no field {min(unknown)}")
    if missing := [name for name, (each, _) in members.items() if name not in given and _is_required(each)]:
        raise Mismatch(f"{path or kind.__name__}: the field {missing[0]}, got none")
    return kind(**{name: build(members[name][1], each, f"{path}.{name}".lstrip(".")) for name, each in given.items()})


def _plain(kind: type, value: Any, path: str) -> Any:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind is float and whole:
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if type(value) is not kind:
        raise Mismatch(f"{path or 'the value'}: {_PLAIN[kind]}, got {value!r}")
    return value


def _of(kind: type, value: Any, path: str) -> Any:
    if not isinstance(value, kind):
        raise Mismatch(f"{path or 'the value'}: {'an object' if kind is dict else 'an array'}, got {value!r}")
    return value


def _first(kinds: Sequence[Any], value: Any, path: str) -> Any:
    """As the first of these types that it is."""
    problems = []
    for kind in kinds:
        try:
            return build(kind, value, path)
        except ValueError as error:
            problems.append(str(error))
    raise Mismatch("; ".join(problems))


def _checked(kind: Callable[[Any], Any], value: Any, path: str) -> Any:
    try:
        return kind(value)
    except ValueError as error:
        raise Mismatch(f"{path or 'the value'}: {error}") from None
