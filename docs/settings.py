"""Writes `settings.md` from the services' config classes, so that they cannot drift apart. Run it with `make docs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.runtime.explain import settings_class
from services.runtime.process.config import ServiceSettings

PAGE = Path(__file__).with_suffix(".md")
SERVICES = Path(__file__).parents[1] / "services"
LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
HEAD = """# Settings

Written by `make docs` from `services/*/config.py`; do not edit.

A setting comes from, strongest first: the command line (`--grace-ms 1000`), the environment, the YAML file that
`HEDGEROW_<SERVICE>_CONFIG` names, the default. A name that no setting has is an error at start-up. Rows such as
`models[].name`, of each in a list, and `tenants{}.premium`, of each by its name, are keys inside a setting that is
given as JSON.
"""


@dataclass(frozen=True)
class Setting:
    """One setting, or one key inside a setting that is given as JSON."""

    path: str  # `vllm.max_model_len`; `models[].name` for a key of a list's items
    variable: str  # the environment variable; for a key inside JSON that of the whole
    schema: Mapping[str, Any]  # JSON Schema
    required: bool


def main() -> None:
    PAGE.write_text(render())
    print(f"{PAGE.name}: {sum(len(list(settings(cls))) for cls in settings_classes())} settings")


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
    """What each in a list is, and each that has a name, with the mark of its keys' paths."""
    named = schema.get("additionalProperties") or next(iter(schema.get("patternProperties", {}).values()), None)
    for mark, each in (("[]", schema.get("items")), ("{}", named)):
        if isinstance(each, dict):
            yield mark, each


def _members(root: Mapping[str, Any], group: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """(name, schema, whether required) of each; what the group's own default says goes before the member's."""
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
    common = {setting.path: setting.schema for setting in settings(ServiceSettings)}
    parts = [HEAD, "## Every service\n", _table(list(settings(ServiceSettings)), "HEDGEROW_<SERVICE>_")]
    for cls in settings_classes():
        own = [setting for setting in settings(cls) if common.get(setting.path) != setting.schema]
        parts += [f"## {cls.__module__.split('.')[1]}\n", _table(own)]
    return "\n".join(parts)


def _table(rows: list[Setting], prefix: str = "") -> str:
    lines = ["| variable | type | default | limits | what |", "|---|---|---|---|---|"]
    for row in rows:
        name = f"{row.variable} {row.path}" if "[]" in row.path or "{}" in row.path else f"{prefix}{row.variable}"
        cells = (
            f"`{name}`",
            kind_of(row.schema),
            _default(row),
            limits_of(row.schema),
            row.schema.get("description", ""),
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def kind_of(schema: Mapping[str, Any]) -> str:
    """Its type, for people."""
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = str(schema.get("type", "any"))
    return "JSON" if kind in ("array", "object", "any") else kind


def _default(row: Setting) -> str:
    if row.required:
        return "required"
    value = row.schema.get("default")
    return "" if value in (None, "") else f"`{value}`"


def limits_of(schema: Mapping[str, Any]) -> str:
    """`≥ 1, ≤ 64`."""
    return ", ".join(f"{sign} {schema[limit]:,}" for limit, sign in LIMITS.items() if limit in schema)


if __name__ == "__main__":
    main()
