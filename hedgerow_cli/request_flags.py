"""Flags for the options of a request, by the table of options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from inspect import Parameter, Signature
from typing import Annotated, Any, Literal, cast

import typer

from hedgerow._option_types import MeshOptions
from hedgerow.request_options import Kind, RequestOption, Surface
from hedgerow.request_options.table import options_on

_TYPES: Mapping[Kind, Any] = {Kind.WHOLE: int, Kind.NUMBER: float}
_METAVARS: Mapping[Kind, str] = {Kind.WHOLE: "N", Kind.NUMBER: "N", Kind.TEXT: "TEXT"}
_LISTS = (Kind.WORDS, Kind.OWN)


def request_flags(*names: str) -> Callable[..., MeshOptions]:
    """The group of a flag for each option of a request, or for those that are named. Its value has the options by their
    names; an option that is not given is None."""
    options = [option for option in options_on(Surface.CLI) if not names or option.name in names]

    def chosen(**given: Any) -> MeshOptions:
        values: Any = {option.name: _value(option, given[option.name]) for option in options}
        return cast(MeshOptions, values)

    chosen.__signature__ = Signature(list(map(_parameter, options)))  # type: ignore[attr-defined]
    return chosen


def _parameter(option: RequestOption) -> Parameter:
    flag = typer.Option(_flag(option.name), metavar=option.metavar or _METAVARS.get(option.kind), help=_help(option))
    default = False if option.kind is Kind.FLAG else None
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[_type(option), flag])


def _help(option: RequestOption) -> str:
    """In plain text; other options by their flags."""
    text = option.help
    for other in options_on(Surface.CLI):
        text = text.replace(f"`{other.name}`", _flag(other.name))
    return text.replace("`", "") + (" May be given several times." if option.kind in _LISTS else "")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _type(option: RequestOption) -> Any:
    if option.kind is Kind.FLAG:
        return bool
    words: Any = option.words
    if option.kind in _LISTS:  # of an enum, because typer takes no list of a literal type
        one: Any = StrEnum(option.name, {word: word for word in words}) if words else str
        return list[one] | None
    return (Literal[words] if words else _TYPES.get(option.kind, str)) | None


def _value(option: RequestOption, given: Any) -> Any:
    """As the SDK takes it."""
    if option.name == "guard" and given:
        return dict(each.partition("=")[::2] for each in given)
    if option.kind in _LISTS:
        return list(map(str, given)) if given else None
    return given or None if option.kind in (Kind.FLAG, Kind.TEXTS) else given
