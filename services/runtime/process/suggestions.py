"""The name of a setting that a mistyped one, or one of an earlier version, may mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel

from services.runtime.process.fixed import is_fixed

_TYPING_ERROR = 0.75  # difflib's ratio from which a name is taken for a mistyped one
# By the name in the environment: the setting to use.
INSTEAD: Mapping[str, str] = {
    "HEDGEROW_GATEWAY_AFTERMATH_BYTES": "HEDGEROW_GATEWAY_WRITE_BEHIND_BYTES",
    "HEDGEROW_GATEWAY_API_KEYS": "`keys` of a tenant",
    "HEDGEROW_GATEWAY_NEAR_CACHE_BYTES": "HEDGEROW_GATEWAY_L1_CACHE_BYTES",
    "HEDGEROW_GATEWAY_STAND_INS": "HEDGEROW_GATEWAY_FALLBACKS",
    "HEDGEROW_GATEWAY_VISION_MODEL": "HEDGEROW_VISION_DEFAULT_MODEL",
    "HEDGEROW_LLM_OPENAI__CONTINUES": "`prefix` in HEDGEROW_LLM_OPENAI__FEATURES",
}


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


def replacement(prefix: str, path: Sequence[str | int]) -> str:
    """The words for the setting at `path` of the service whose variables begin with `prefix`; empty for one that no
    version had."""
    instead = INSTEAD.get(f"{prefix}{'__'.join(map(str, path))}".upper())
    return f"no longer a setting, use {instead} (docs/upgrades.md)" if instead else ""
