"""Every field of a published request schema, each in a request of its own: read from the types of the package that
publishes it, so that a new version of the package brings its new fields."""

from __future__ import annotations

import dataclasses
import os
import types
import typing
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NotRequired, Required

from annotated_types import Ge, Gt
from pydantic import BaseModel
from typing_extensions import TypeAliasType, get_type_hints, is_typeddict

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
# Valid texts, where not every text is valid, by the end of the place.
TEXTS: Mapping[str, str] = {
    "data": PIXEL,
    "image_url.url": f"data:image/png;base64,{PIXEL}",
    "arguments": "{}",
    "tool_call_id": "call_1",
    "tool_use_id": "call_1",
}
_KEY = "7"  # of an object whose keys are free
_FREE: Mapping[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}  # an object of any kind
_WHOLE, _NUMBER = 2, 0.5
_Rebuild = Callable[[Any], Any]  # a whole request, of a value at some place in it


@dataclass(frozen=True, slots=True)
class Published:
    """One field with one value, in an otherwise smallest request. `place`: `messages[0].content[0].text`."""

    place: str
    body: Mapping[str, Any]


def fields(schema: type, given: Mapping[str, Any]) -> Iterator[Published]:
    """Each field of `schema` and of all objects in it, with a value of each kind that it takes. An object that stands
    at several places below one field of the schema is at the one that is the least deep. `given`: fields that every
    request has as they are. Raises TypeError for a type of a kind that is new here."""
    seen = set[tuple[type, str]]()
    waiting: deque[tuple[type, str, _Rebuild]] = deque([(schema, "", lambda whole: {**whole, **given})])
    while waiting:
        kind, place, rebuild = waiting.popleft()
        known = {} if place else given
        smallest = _smallest(kind, place, known)
        for name, hint in _hints(kind).items():
            if name in known:
                continue
            at = f"{place}.{name}" if place else name
            put = _put(rebuild, smallest, name)
            for value in _values(hint, at):
                yield Published(at, put(value))
            for inner, inner_place, inside in _objects(hint, at):
                key = inner, _root(at)
                if key not in seen:
                    seen.add(key)
                    waiting.append((inner, inner_place, _within(put, inside)))


def _root(place: str) -> str:
    return place.partition(".")[0].partition("[")[0]


def _put(rebuild: _Rebuild, smallest: Mapping[str, Any], name: str) -> _Rebuild:
    return lambda value: rebuild({**smallest, name: value})


def _within(outer: _Rebuild, inner: _Rebuild) -> _Rebuild:
    return lambda value: outer(inner(value))


def _is_object(kind: Any) -> bool:
    return is_typeddict(kind) or (isinstance(kind, type) and dataclasses.is_dataclass(kind)) or _is_model(kind)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _hints(kind: Any) -> dict[str, Any]:
    """The types of an object's fields, by the names that they have as JSON."""
    if _is_model(kind):
        return {
            field.alias or name: typing.Annotated[field.annotation, *field.metadata]
            if field.metadata
            else field.annotation
            for name, field in kind.model_fields.items()
        }
    hints: dict[str, Any] = get_type_hints(kind, include_extras=True)
    if not is_typeddict(kind):
        return {each.name: hints[each.name] for each in dataclasses.fields(kind) if each.init}
    return {name: hint for name, hint in hints.items() if not _is_header(hint)}


def _is_header(hint: Any) -> bool:
    """Whether a client sends it beside the body."""
    while typing.get_origin(hint) in (Required, NotRequired):
        (hint,) = typing.get_args(hint)
    return any("anthropic-beta" in repr(note) for note in getattr(hint, "__metadata__", ()))


def _needed(kind: Any) -> frozenset[str]:
    if _is_model(kind):
        return frozenset(field.alias or name for name, field in kind.model_fields.items() if field.is_required())
    if is_typeddict(kind):  # its own `__required_keys__` does not read annotations that are texts
        wrapped = {name: typing.get_origin(hint) for name, hint in _hints(kind).items()}
        return frozenset(
            name for name, by in wrapped.items() if by is Required or (kind.__total__ and by is not NotRequired)
        )
    missing = dataclasses.MISSING
    return frozenset(
        each.name for each in dataclasses.fields(kind) if each.default is missing and each.default_factory is missing
    )


def _smallest(kind: Any, place: str, known: Collection[str] = ()) -> dict[str, Any]:
    """An object with the fields that it needs, but for those that are `known`."""
    needed = _needed(kind) - {*known}
    return {
        name: next(_values(hint, f"{place}.{name}" if place else name))
        for name, hint in _hints(kind).items()
        if name in needed
    }


def _values(hint: Any, place: str) -> Iterator[Any]:
    """A value of each kind that a field takes; of words, all. Null is left out: it is as if the field was not there."""
    for kind, least in _kinds(hint):
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Literal:
            yield from inner
        elif isinstance(kind, type) and issubclass(kind, Enum):
            yield from (each.value for each in kind)
        elif _is_object(kind):
            yield _smallest(kind, place)
        elif _is_array(kind):
            yield from ([value] for value in _values(inner[0], f"{place}[0]"))
        elif origin in (dict, Mapping):
            yield from ({_KEY: value} for value in _values(inner[1], f"{place}.{_KEY}"))
        else:
            yield from _plain(kind, place, least)


def _plain(kind: Any, place: str, least: float) -> Iterator[Any]:
    if kind is str:
        yield next((text for end, text in TEXTS.items() if place.endswith(end)), "x")
    elif kind is bool:
        yield from (True, False)
    elif kind is int:
        yield max(_WHOLE, int(least))
    elif kind is float:
        yield max(_NUMBER, least)
    elif kind in (object, Any, dict):
        yield dict(_FREE)
    elif kind is list:
        yield [dict(_FREE)]
    else:
        raise TypeError(f"{place}: a type of a kind that is new here: {kind!r}")


def _objects(hint: Any, place: str) -> Iterator[tuple[Any, str, _Rebuild]]:
    """The objects that a field has in it: each with its place, and with what makes a value of the field of it."""
    for kind, _ in _kinds(hint):
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if _is_object(kind):
            yield kind, place, lambda value: value
        elif _is_array(kind):
            for found, at, rebuild in _objects(inner[0], f"{place}[0]"):
                yield found, at, _within(lambda value: [value], rebuild)
        elif origin in (dict, Mapping):
            for found, at, rebuild in _objects(inner[1], f"{place}.{_KEY}"):
                yield found, at, _within(lambda value: {_KEY: value}, rebuild)


def _is_array(kind: Any) -> bool:
    origin = typing.get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, typing.Iterable) and not issubclass(origin, Mapping)


def _kinds(hint: Any, least: float = 0) -> Iterator[tuple[Any, float]]:
    """The types that a hint allows and that JSON has, each with the least number that it may be."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, TypeAliasType | getattr(typing, "TypeAliasType", TypeAliasType)):
        yield from _kinds(hint.__value__, least)
    elif origin in (Required, NotRequired):
        yield from _kinds(inner[0], least)
    elif origin is typing.Annotated:
        notes = [note.ge if isinstance(note, Ge) else note.gt + 1 for note in inner[1:] if isinstance(note, Ge | Gt)]
        yield from _kinds(inner[0], max([least, *map(float, notes)]))
    elif origin in (typing.Union, types.UnionType):
        for each in inner:
            yield from _kinds(each, least)
    elif hint is not type(None) and not _is_no_json(hint):
        yield hint, least


def _is_no_json(kind: Any) -> bool:
    """What only a program can pass: files, paths and answers."""
    origin = typing.get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, (typing.IO, os.PathLike, bytes))
