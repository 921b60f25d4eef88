"""Fields of settings that operators do not set.

A value that only its author could choose, such as a window or the size of a queue, is `Fixed[int]`: it has its reason
beside it, and code may pass another one (`GatewaySettings(hedge={"window_s": 5})`), as unit tests do. It is no setting:
`docs/settings.md` has no row for it and the command line no help, and the environment, a file or an option that gives
it is refused by name. `Fixed[int | None]` with the default None is derived from other settings, as its description
says after "None: ", which the refusal repeats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema
from pydantic_settings import CLI_SUPPRESS, PydanticBaseSettingsSource

T = TypeVar("T")
_MARK = object()
Fixed = Annotated[T, SkipJsonSchema(), CLI_SUPPRESS, _MARK]
_MORE = " (docs/upgrades.md)"
_FROM_CODE = ("InitSettingsSource", "DefaultSettingsSource")  # pydantic's names of its sources


def is_fixed(field: FieldInfo) -> bool:
    """Whether only code may pass the field."""
    return _MARK in field.metadata


def refuse(cls: type[BaseModel], given: Mapping[str, Any], at: str = "") -> None:
    """Raise ValueError where an operator gives fixed fields: a line for each, with its path and value."""
    if found := [f"{path}: no longer a setting, {instead}{_MORE}" for path, instead in _fixed(cls, given, at)]:
        raise ValueError("\n".join(found))


class NoneFixed(PydanticBaseSettingsSource):
    """The last source. It has no values, and refuses fixed fields in the operator's sources before it."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        raise AssertionError("not used: it gives nothing")

    def __call__(self) -> dict[str, Any]:
        for source, given in self.settings_sources_data.items():
            if source not in _FROM_CODE:
                refuse(self.settings_cls, given)
        return {}


def _fixed(
    cls: type[BaseModel], given: Mapping[str, Any], at: str = "", whole: object = None, within: bool = False
) -> Iterator[tuple[str, str]]:
    """(path, value or rule that applies instead) of each given field that is fixed, or `within` a fixed group."""
    for name, value in given.items():
        if (field := cls.model_fields.get(name)) is None:
            continue  # pydantic refuses it
        path, fixed = f"{at}{name}", within or is_fixed(field)
        always = getattr(whole, name, field.get_default(call_default_factory=True))
        groups = list(_groups(field.annotation, value, path))
        for group, members, place in groups:
            yield from _fixed(group, members, f"{place}.", always if place == path else None, fixed)
        if fixed and not groups:
            yield path, _instead(always, field.description or "")


def _instead(value: object, description: str) -> str:
    if value is None:
        return ": ".join(filter(None, ("derived from other settings", description.partition("None: ")[2].rstrip("."))))
    if isinstance(value, bool):
        return f"always {str(value).lower()}"
    return f"always {value:,}" if isinstance(value, int | float) else f"always {value}"


def _groups(annotation: Any, value: Any, at: str) -> Iterator[tuple[type[BaseModel], Mapping[str, Any], str]]:
    """(class, members, path) of the groups in a field's value: itself one, or those in a list or under names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if isinstance(value, Mapping):
            yield annotation, value, at
    elif get_origin(annotation) in (Union, UnionType):
        for choice in get_args(annotation):
            yield from _groups(choice, value, at)
    else:
        each = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
        for key, member in each:
            for inner in get_args(annotation):
                yield from _groups(inner, member, f"{at}.{key}")
