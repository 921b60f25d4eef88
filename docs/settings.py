"""Writes `settings.md` from the services' config classes, so that they cannot drift apart. Run it with `make docs`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hedgerow.engines import PROVIDER_ENGINES
from launcher.meshfile.tenants import Tenant
from services.runtime.explain import settings_class
from services.runtime.process.config import ServiceSettings

PAGE = Path(__file__).with_suffix(".md")
SERVICES = Path(__file__).parents[1] / "services"
# Units by the end of a name.
UNITS = {
    "usd_per_mtok": "US dollars",
    "_ms": "ms",
    ".ms": "ms",
    "per_s": "1/s",
    "per_minute": "1/min",
    "_s": "s",
    "_bytes": "bytes",
}
LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
HEAD = """# Settings

Look up a setting of a service. `make docs` writes this page from the services' settings; do not edit it.

The first of these places that names a setting counts: the command line (`--grace-ms 1000`), the environment, the YAML
file that `HEDGEROW_<SERVICE>_CONFIG` names, the default. An unknown name ends the start. Every field of vLLM's
`AsyncEngineArgs` is a setting too, `HEDGEROW_LLM_VLLM__<FIELD>`: `MAX_MODEL_LEN`, `MAX_NUM_SEQS`,
`GPU_MEMORY_UTILIZATION`, `TENSOR_PARALLEL_SIZE` and so on. In parentheses: default; unit, limits.
"""
# The settings to look at first: (variable, when to change it).
FIRST = (
    ("HEDGEROW_GATEWAY_LLM_ADDRESSES", "Always: it names the models and where each is served."),
    ("HEDGEROW_GATEWAY_HTTP_ADDRESS", "Clients of OpenAI's or Anthropic's API are to connect."),
    ("HEDGEROW_GATEWAY_TENANTS_FILE", "The gateway serves beyond loopback, or tenants need keys, quotas and limits."),
    ("HEDGEROW_GATEWAY_PROFILE", "Requests and answers must stay as they are: `transparent`."),
    ("HEDGEROW_GATEWAY_DEFAULT_BUDGET_MS", "Callers wait for a longer or a shorter time than 30 s."),
    ("HEDGEROW_GATEWAY_HEDGE__MAX_SHARE", "Late first tokens are worth more second calls, or calls cost too much."),
    ("HEDGEROW_GATEWAY_LIMIT__INITIAL", "The capacity of a model is known, or requests wait just after a start."),
    ("HEDGEROW_ROUTER_MODELS", "A model, its price or its tier changes."),
    (
        "HEDGEROW_CACHE_SIMILARITY_THRESHOLD",
        "Stored answers are wrong (raise it), or hits are too few.",
    ),
    ("HEDGEROW_<SERVICE>_TLS_DIR", "Services are on more than one machine."),
)
# What has keys of its own, by the mark of their paths: the title of its table. A description has the keys of the rest.
ENTRIES = {
    "hits.categories{}": "A category of questions",
    "models[]": "A model of the catalogue",
    "system_prompts{}": "A system prompt",
    "tenants{}": "A tenant",
    "tools.sources{}": "A source of tools",
}
# Keys of a tenant that the page on mesh files describes, in the same words.
_OF_MESH_FILES = {f"tenants{{}}.{name}" for name in Tenant.model_fields}
SHARED = ("redis_url",)  # settings that several services have, listed once


@dataclass(frozen=True)
class Setting:
    """One setting, or one key inside a setting that is given as JSON."""

    path: str  # `vllm.max_model_len`; `models[].name` for a key of a list's items
    variable: str  # the environment variable; for a key inside JSON that of the whole
    schema: Mapping[str, Any]  # JSON Schema
    required: bool


def main() -> None:
    PAGE.write_text(render())
    for title, rows in tables():
        print(f"{len(rows):4} {title.splitlines()[0].lstrip('# ')}")
    print(f"{sum(len(rows) for _, rows in tables()):4} in {PAGE.name}")


def settings_classes() -> list[type[ServiceSettings]]:
    """The settings class of each service, in the order of their names."""
    return [settings_class(path.parent.name) for path in sorted(SERVICES.glob("*/config.py"))]


def settings(cls: type[ServiceSettings]) -> Iterator[Setting]:
    """Every setting of `cls`, nested ones included."""
    root = cls.model_json_schema()
    prefix = cls.model_config.get("env_prefix", "")
    for name, field in root.get("properties", {}).items():
        setting = Setting(name, f"{prefix}{name}".upper(), plain(root, field), name in root.get("required", ()))
        yield from _nested(root, setting)


def _nested(root: Mapping[str, Any], setting: Setting) -> Iterator[Setting]:
    """`setting`; or, when it is a group, its members; or, when it is a list of groups or has them by name, it and
    their keys."""
    for name, member, required in _members(root, setting.schema):
        yield from _nested(
            root, Setting(f"{setting.path}.{name}", f"{setting.variable}__{name.upper()}", member, required)
        )
    if "properties" not in setting.schema:
        yield setting
        for mark, each in _each(setting.schema):
            for name, member, required in _members(root, plain(root, each)):
                yield Setting(f"{setting.path}{mark}.{name}", setting.variable, member, required)


def _each(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The schema of each list item and each named member, with the mark of its keys' paths."""
    named = schema.get("additionalProperties") or next(iter(schema.get("patternProperties", {}).values()), None)
    for mark, each in (("[]", schema.get("items")), ("{}", named)):
        if isinstance(each, dict):
            yield mark, each


def _members(root: Mapping[str, Any], group: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """(name, schema, whether required) of each; the group's own default overrides the member's."""
    given = group.get("default") or {}
    for name, member in group.get("properties", {}).items():
        shape = plain(root, member)
        if name in given:
            yield name, {**shape, "default": given[name]}, False
        else:
            yield name, shape, name in group.get("required", ())


def plain(root: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """`schema` with its reference, and the one choice it leaves beside null, put in place."""
    if "$ref" in schema:
        target = root["$defs"][schema["$ref"].rpartition("/")[2]]
        return {**plain(root, target), **{key: value for key, value in schema.items() if key != "$ref"}}
    choices = [choice for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
    if len(choices) == 1:
        return {**plain(root, choices[0]), **{key: value for key, value in schema.items() if key != "anyOf"}}
    return schema


def render() -> str:
    """The page."""
    return "\n".join(
        ["\n".join([HEAD, "## The ten that matter most\n\nChange it when:\n", *_first()]) + "\n", *_tables()]
    )


def tables() -> Iterator[tuple[str, list[Setting]]]:
    """(title, settings) of each list. A setting of every service is in the first one alone, and one that several
    providers have in their groups."""
    every = [*settings(ServiceSettings), *map(_shared, SHARED)]
    yield "## Every service", [replace(row, variable=f"HEDGEROW_<SERVICE>_{row.variable}") for row in every]
    common = {row.path for row in every}
    for cls in settings_classes():
        rows = [row for row in settings(cls) if row.path not in common]
        keys = {row.path: row for row in rows if "[]" in row.path or "{}" in row.path}
        yield f"## {_service(cls)}", list(_once(row for row in rows if row.path not in keys))
        for entry, title in ENTRIES.items():
            if found := [row for path, row in keys.items() if path.rpartition(".")[0] == entry]:
                yield f"### {title}\n\nKeys of each in `{found[0].variable}`.", found


def _shared(path: str) -> Setting:
    """The row of a setting that several services have."""
    found = {
        name: row
        for name in map(_service, settings_classes())
        for row in settings(settings_class(name))
        if row.path == path
    }
    row = next(iter(found.values()))
    description = f"{row.schema['description']} Of {', '.join(found)}."
    return replace(row, variable=path.upper(), schema={**row.schema, "description": description})


def _service(cls: type[ServiceSettings]) -> str:
    return cls.__module__.split(".")[1]


def _tables() -> Iterator[str]:
    for title, rows in tables():
        yield f"{title}\n"
        shown = [row for row in rows if row.path not in _OF_MESH_FILES]
        if shown != rows:
            yield (
                "The other keys are those of [a tenant in a mesh file](mesh-file.md#tenantsname), without `key_env`, "
                "`key_file` and `key_sha256`.\n"
            )
        yield _list(shown)


def _once(rows: Iterable[Setting]) -> Iterator[Setting]:
    """With one row for a setting that all providers have, as `HEDGEROW_LLM_<PROVIDER>__MODEL`."""
    listed = list(rows)
    paths = {row.path for row in listed}
    for row in listed:
        group, _, name = row.path.partition(".")
        if group not in PROVIDER_ENGINES or not paths.issuperset(f"{other}.{name}" for other in PROVIDER_ENGINES):
            yield row
        elif group == PROVIDER_ENGINES[0]:
            yield replace(row, variable=row.variable.replace(group.upper(), "<PROVIDER>"))


def _first() -> Iterator[str]:
    """The settings to look at first, each with its default."""
    shown = {row.variable: row for _, rows in tables() for row in rows if "{}" not in row.path and "[]" not in row.path}
    yield from (entry(variable, _default(shown[variable]), "", when) for variable, when in FIRST)


def _list(rows: list[Setting]) -> str:
    lines = []
    for row in rows:
        key = "{}" in row.path or "[]" in row.path
        measure = measure_of(row.path, row.schema, kind_of(row.schema))
        name = row.path.rpartition(".")[2] if key else row.variable
        lines.append(entry(name, _default(row), measure, row.schema.get("description", "")))
    return "\n".join(lines) + "\n"


def entry(name: str, default: str, measure: str, what: str) -> str:
    """The line of a setting or key."""
    values = "; ".join(filter(None, (default, measure)))
    return f"- `{name}` ({values}): {what}" if values else f"- `{name}`: {what}"


def measure_of(name: str, schema: Mapping[str, Any], kind: str) -> str:
    """Its unit, which its name ends with, or its type, and its limits."""
    unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), kind)
    return ", ".join(filter(None, [unit, limits_of(schema)]))


def kind_of(schema: Mapping[str, Any]) -> str:
    """Its words, or its type where neither default nor limits show it."""
    if "enum" in schema:
        return "/".join(f"`{value}`" for value in schema["enum"])
    kind = str(schema.get("type", "any"))
    if kind in ("string", "integer", "number") or (kind == "boolean" and "default" in schema):
        return ""
    return "JSON" if kind in ("array", "object", "any") else kind


def _default(row: Setting) -> str:
    """Its default; of a setting of several services or providers also those of the ones that have another."""
    if row.required:
        return "required"
    others = _others(row) if "<SERVICE>" in row.variable else _of_providers(row) if "<PROVIDER>" in row.variable else {}
    defaults = {"": _shown(row), **others}
    shown = {name: f"`{_text(value)}`" for name, value in defaults.items() if value not in (None, "")}
    return ", ".join(f"{name}: {text}" if name else text for name, text in shown.items())


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _shown(row: Setting) -> Any:
    """The default in the schema; of a group none, because it has those of its members."""
    return "" if "properties" in row.schema else row.schema.get("default")


def _others(row: Setting) -> dict[str, Any]:
    """The defaults of the services where it is not the usual one."""
    found = {}
    for cls in settings_classes():
        usual = row.schema.get("default")
        value = next((own.schema.get("default") for own in settings(cls) if own.path == row.path), usual)
        if value != usual:
            found[_service(cls)] = value
    return found


def _of_providers(row: Setting) -> dict[str, Any]:
    """The defaults of the other providers where it is not that of the first."""
    name = row.path.partition(".")[2]
    defaults = {own.path: own.schema.get("default") for own in settings(settings_class("llm"))}
    values = {provider: defaults[f"{provider}.{name}"] for provider in PROVIDER_ENGINES[1:]}
    return {provider: value for provider, value in values.items() if value != row.schema.get("default")}


def limits_of(schema: Mapping[str, Any]) -> str:
    """`1–64`, or `>0, ≤64`."""
    if "minimum" in schema and "maximum" in schema:
        return f"{schema['minimum']:,}–{schema['maximum']:,}"
    return ", ".join(f"{sign}{schema[limit]:,}" for limit, sign in LIMITS.items() if limit in schema)


if __name__ == "__main__":
    main()
