"""Groups of options: options that several commands share, or that make one value together.

A group is a function or a dataclass. Its parameters are the options, and its result is the value that a command gets:

    @with_options(reach=to_gateway)
    def tools(as_json: options.AsJson = False, *, reach: Reach) -> None:
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Any, TypeVar

T = TypeVar("T")


def with_options(**groups: Callable[..., Any]) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Give a command, or another group, the options of each group in the place of the parameter of that name."""
    options = {name: inspect.signature(group, eval_str=True).parameters for name, group in groups.items()}

    def decorate(command: Callable[..., T]) -> Callable[..., T]:
        def run(**given: Any) -> T:
            values = {
                name: group(**{each: given.pop(each) for each in options[name]}) for name, group in groups.items()
            }
            return command(**given, **values)

        signature = inspect.signature(command, eval_str=True)
        parameters = [
            each.replace(kind=Parameter.KEYWORD_ONLY)
            for own in signature.parameters.values()
            for each in (options[own.name].values() if own.name in groups else (own,))
        ]
        run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {}  # the signature has them
        return run

    return decorate
