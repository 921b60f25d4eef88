"""Writes the keys of `mesh-file.md`, and the JSON Schema, from the file's own classes. Run it with `make docs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docs.settings import entry, kind_of, measure_of, plain
from launcher.meshfile.json_schema import SHIPPED, text
from launcher.meshfile.schema import MeshFile

PAGE = Path(__file__).with_name("mesh-file.md")
HEAD = "## All keys\n"
# The part between a section's name and its keys, for sections with chosen names.
_NAMED = {"models": "models.NAME", "tenants": "tenants.NAME"}
_KINDS = {"models": "models by name", "tenants": "tenants by name"}


def main() -> None:
    PAGE.write_text(render(PAGE.read_text()))
    SHIPPED.write_text(text())
    print(f"{PAGE.name}: {len(list(_sections()))} lists; {SHIPPED.name}")


def render(page: str) -> str:
    """The page with its lists of keys as they should be; they are the rest of it from `HEAD` on."""
    sections = [*_sections()]
    plain_ones = [f"`{name}`" for name, _, members, _ in sections if not _own(members)]
    others = [(name, what, _own(members), required) for name, what, members, required in sections if _own(members)]
    lists = [_list(*section) for section in others]
    settings = "Models and sections of services may have `settings`: [their settings](settings.md), like `grace_ms`."
    alone = f"{settings} {' and each of '.join(plain_ones)} have nothing else.\n"
    return page.partition(HEAD)[0] + HEAD + "\n" + "\n".join([*lists, alone])


def _sections() -> Iterator[tuple[str, str, Mapping[str, Any], list[str]]]:
    """(name, what it is, its keys, those that are required) of the file and of each section of it."""
    root = MeshFile.model_json_schema(mode="serialization")  # each section in full, not its short forms
    yield (
        "",
        "In parentheses: default; values. Paths are relative to the file's folder.",
        _plain_all(root, root),
        root["required"],
    )
    for name, member in _plain_all(root, root).items():
        by_name = next(iter(member.get("patternProperties", {}).values()), member.get("additionalProperties"))
        yield from _of(root, _NAMED.get(name, name), plain(root, by_name or member))


def _of(
    root: Mapping[str, Any], name: str, section: Mapping[str, Any]
) -> Iterator[tuple[str, str, Mapping[str, Any], list[str]]]:
    if "properties" not in section:
        return
    members = _plain_all(root, section)
    what = root["$defs"][section["title"]]["description"]
    yield name, " ".join(what.split()), members, section.get("required", [])
    for key, member in members.items():
        yield from _of(root, f"{name}.{key}", member)


def _own(members: Mapping[str, Any]) -> dict[str, Any]:
    """The keys without `settings`, which the page describes once for all sections."""
    return {key: member for key, member in members.items() if key != "settings"}


def _plain_all(root: Mapping[str, Any], section: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {name: plain(root, member) for name, member in section["properties"].items()}


def _list(name: str, what: str, members: Mapping[str, Mapping[str, Any]], required: list[str]) -> str:
    lines = [f"### `{name}`\n" if name else "### The file\n", f"{what}\n"]
    for key, schema in members.items():
        default = "required" if key in required else _default(schema)
        measure = measure_of(key, schema, _kind(key, schema))
        lines.append(entry(key, default, measure, schema.get("description", "")))
    return "\n".join(lines) + "\n"


def _kind(key: str, schema: Mapping[str, Any]) -> str:
    if "properties" in schema:
        return "section"
    if schema.get("type") == "array":
        return "string, or a list"
    if schema.get("type") == "object":
        return _KINDS.get(key, "mapping")
    return kind_of(schema)


def _default(schema: Mapping[str, Any]) -> str:
    value = schema.get("default")
    return "" if isinstance(value, dict | list) or value in (None, "") else f"`{str(value).lower()}`"


if __name__ == "__main__":
    main()
