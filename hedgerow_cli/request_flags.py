"""Flags of a command for the options of a request, by the table of options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from enum import StrEnum
from inspect import Parameter
from typing import Annotated, Any, Literal

import typer

from hedgerow.request_options import Kind, RequestOption, Surface
from hedgerow.request_options.table import options_on

_TYPES: Mapping[Kind, Any] = {Kind.WHOLE: int, Kind.NUMBER: float}
_METAVARS: Mapping[Kind, str] = {Kind.WHOLE: "N", Kind.NUMBER: "N", Kind.TEXT: "TEXT"}
_LISTS = (Kind.WORDS, Kind.OWN)


def with_request_flags(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a flag for each option of a request, or for those that are named, in the place of its parameter
    `chosen`. That has the values by the options' names; an option that is not given is None or not there."""
    options = [option for option in options_on(Surface.CLI) if not names or option.name in names]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(**given: Any) -> None:
            chosen = {option.name: _value(option, given.pop(option.name)) for option in options}
            command(**given, chosen=chosen)

        signature = inspect.signature(command, eval_str=True)
        parameters = list[Parameter]()
        for parameter in signature.parameters.values():
            parameters += map(_parameter, options) if parameter.name == "chosen" else [parameter]
        run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {}  # the signature has them
        return run

    return decorate


def _parameter(option: RequestOption) -> Parameter:
    flag = typer.Option(
        _flag(option.name),
        metavar=option.metavar or _METAVARS.get(option.kind),
        help=_help(option),
    )
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
