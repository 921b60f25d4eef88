"""The name of a setting that a mistyped one may mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel

from services.runtime.process.fixed import is_fixed

_TYPING_ERROR = 0.75  # difflib's ratio from which a name is taken for a mistyped one


def nearest(given: str, known: Iterable[str]) -> str:
    """The known name that is nearest to `given`, else the first that has it as a whole word (`budget` in
    `default_budget_ms`), else empty."""
    names = list(known)
    parts = (name for name in names if given and f"_{given}_" in f"_{name}_")
    return next(iter(get_close_matches(given, names, n=1, cutoff=_TYPING_ERROR)), "") or next(parts, "")


def hint(name: str) -> str:
    """The end of a message that suggests `name`; empty without one."""
    return f"; did you mean {name}?" if name else ""


def offered(section: type[BaseModel]) -> list[str]:
    """The names that an operator may set in a group of settings."""
    return [name for name, field in section.model_fields.items() if not is_fixed(field)]


def nearest_at(cls: type[BaseModel], path: Sequence[str | int]) -> str:
    """The nearest name of the same group to the one at `path`."""
    section = cls
    for step in path[:-1]:
        field = section.model_fields.get(str(step))
        section = (_group_in(field.annotation) if field else None) or section
    return nearest(str(path[-1]), offered(section))


def _group_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_group_in, get_args(annotation))), None)
