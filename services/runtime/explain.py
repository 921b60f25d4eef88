"""The settings a service would start with here, each with its unit and where it comes from, as one JSON object.

`python -m services.runtime.explain gateway` reads them as the service itself does, in its own environment, and so also
refuses what it would refuse, with the same words. For the gateway it adds the plan: how these settings split a budget.
The runtime knows no service, so a service's own modules are asked for by name.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic_core import to_jsonable_python
from pydantic_settings import EnvSettingsSource

from hedgerow.identities import SERVICES
from services.runtime.process.config import ServiceSettings, load, read_yaml
from services.runtime.process.fixed import is_fixed
from services.runtime.security.secrets import shown

# By how a setting's name ends; the first that fits. Other numbers are counts.
_UNITS = {
    "_usd_per_mtok": "USD a million tokens",
    "_per_minute": "a minute",
    "_per_s": "a second",
    "_ms": "ms",
    "_s": "s",
    "_bytes": "bytes",
    "_gib": "GiB",
    "_entries": "entries",
    "tokens": "tokens",
    "_tokens_cap": "tokens",
    "_model_len": "tokens",
    "percentile": "%",
    "cpu": "cores",
    **dict.fromkeys(("share", "_rate", "_ratio", "_threshold", "_utilization"), "of 1"),
}
_Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting in force. `origin` is its file or variable."""

    setting: str
    value: Any
    unit: str
    source: str  # `default`, `file` or `environment`
    origin: str = ""


def main(argv: Sequence[str]) -> None:
    """Print the settings of `explain`. Exits with 2 and the problems, if the service would."""
    parser = argparse.ArgumentParser(prog="python -m services.runtime.explain", description=__doc__)
    parser.add_argument("service", choices=tuple(SERVICES))
    parser.add_argument("--budget-ms", type=float, help="for the gateway: the budget to split")
    arguments = parser.parse_args(argv)
    if arguments.budget_ms is not None and not arguments.budget_ms > 0:
        parser.error(f"--budget-ms: above 0, got {arguments.budget_ms:g}")
    print(json.dumps(explain(arguments.service, arguments.budget_ms)))


def explain(service: str, budget_ms: float | None = None) -> dict[str, Any]:
    """The settings of a service in this environment; for the gateway also its plan."""
    cls = settings_class(service)
    settings = load(cls, [], prog=f"python -m services.{service}")
    answer: dict[str, Any] = {"service": service, "settings": [asdict(row) for row in rows(settings)]}
    if service == "gateway":
        answer["plan"] = _plan(settings, budget_ms)
    return answer


def rows(settings: ServiceSettings) -> Iterator[SettingRow]:
    """Every setting, those inside groups and mappings one by one. `settings` are those of this environment."""
    sources = _Sources(type(settings))
    for path, value in _leaves((), settings):
        name, number = str(path[-1]), isinstance(value, int | float) and not isinstance(value, bool)
        unit = next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), "") if number else ""
        yield SettingRow(".".join(map(str, path)), shown(value, name), unit, *sources.of(path))


def _leaves(path: _Path, value: Any) -> Iterator[tuple[_Path, Any]]:
    """(path, value as JSON has it) of everything that holds no more names."""
    members: Mapping[Any, Any] = {}
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        # An iterator, since a field may be called `keys`; extra ones included, and none that operators do not set.
        members = {name: member for name, member in value if not (name in fields and is_fixed(fields[name]))}
    elif isinstance(value, Mapping):
        members = value
    elif isinstance(value, list | tuple) and any(isinstance(item, BaseModel | Mapping) for item in value):
        members = dict(enumerate(value))
    for name, member in members.items():
        yield from _leaves((*path, name), member)
    if not members:
        yield path, str(value) if isinstance(value, SecretStr) else to_jsonable_python(value)


class _Sources:
    """The values of environment and file, to find the source of each value."""

    def __init__(self, cls: type[ServiceSettings]):
        self._prefix = str(cls.model_config.get("env_prefix", ""))
        self._environment = EnvSettingsSource(cls)()
        self._variables = {name.upper() for name in os.environ}
        self._file = os.environ.get(f"{self._prefix}CONFIG", "")
        self._in_file = read_yaml(self._file) if self._file else {}

    def of(self, path: _Path) -> tuple[str, str]:
        """(source, origin) of the setting at `path`: the environment is stronger than the file."""
        if _holds(self._environment, path):
            return "environment", self._variable(path)
        return ("file", self._file) if _holds(self._in_file, path) else ("default", "")

    def _variable(self, path: _Path) -> str:
        """The variable that says it: the setting's own, else that of the nearest group around it, given as JSON."""
        names = [f"{self._prefix}{'__'.join(map(str, path[:end]))}".upper() for end in range(len(path), 0, -1)]
        return next(name for name in names if name in self._variables)


def _holds(values: Any, path: _Path) -> bool:
    """Whether `values` say anything of `path`."""
    for step in path:
        members = dict(enumerate(values)) if isinstance(values, list) else values
        if not isinstance(members, Mapping) or step not in members:
            return False
        values = members[step]
    return True


def settings_class(service: str) -> type[ServiceSettings]:
    """The class of a service's settings. Raises ImportError if the service is not installed."""
    module = import_module(f"services.{service}.config")
    own = (each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__)
    return next(cls for cls in own if issubclass(cls, ServiceSettings))


def _plan(settings: Any, budget_ms: float | None) -> dict[str, Any]:
    """The gateway's plan for a budget (default: its own), with latest start times in milliseconds."""
    stages_, planning = import_module("services.gateway.answer.registry"), import_module("services.gateway.answer.plan")
    whole_ms = min(budget_ms or settings.default_budget_ms, settings.max_budget_ms)

    def slices(*wanted: str) -> list[dict[str, Any]]:
        required = ("audio", "llm")
        stages = stages_.claims(
            settings.stage_budgets, [(name, name in required) for name in stages_.STAGES if name in wanted]
        )
        plan = planning.make_plan(stages, whole_ms, floor_share=settings.floor_share)
        return [{"stage": s.stage.name, "starts_ms": s.starts_ms, "budget_ms": s.budget_ms} for s in plan.slices]

    first_ms = min(settings.first_token_budget_ms or math.inf, whole_ms)
    text = (*(["cache"] if settings.cache_address else []), "router", "llm")
    senses = [name for name in ("audio", "vision") if getattr(settings, f"{name}_address")]
    said = {"budget_ms": whole_ms, "first_text_ms": first_ms, "slices": slices(*text)}
    return said | ({"slices_with_senses": slices(*senses, *text)} if senses else {})


if __name__ == "__main__":
    main(sys.argv[1:])
