"""Values that options name: JSON text, files, tools of the mesh and of the caller."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from hedgerow import MeshTool, Tool

_MESH_TOOL = re.compile(r"[A-Za-z0-9_-]{1,64}(=.*)?", re.DOTALL)


def json_text(given: str, option: str) -> str:
    """JSON text that was given, or is in the file that was named."""
    import json

    try:
        text = given if given.lstrip().startswith("{") else Path(given).read_text()
        if not isinstance(json.loads(text), dict):
            raise ValueError("it is no object")
    except (OSError, ValueError) as error:
        wanted = "a JSON object, or a file with one"
        raise typer.BadParameter(f"{wanted}, got {given}: {error}", param_hint=option) from None
    return text


def text_of(file: Path, option: str) -> str:
    """The text of a file that an option names."""
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"a text file in UTF-8, got {file}: {error}", param_hint=option) from None


def is_mesh_tool(given: str) -> bool:
    """Whether an option names a tool of the mesh, and no file that describes one of the caller's."""
    return bool(_MESH_TOOL.fullmatch(given)) and not Path(given).exists()


def own_tools(given: list[str] | None) -> list[Tool]:
    """Those that files describe."""
    return [read_tool(Path(each)) for each in given or () if not is_mesh_tool(each)]


def mesh_tools(
    given: list[str] | None, sources: list[str] | None, collections: list[str] | None, *, agent: bool
) -> list[MeshTool]:
    """Those that the gateway calls."""
    from hedgerow import MeshTool

    named = [_mesh_tool(each, agent) for each in given or () if is_mesh_tool(each)]
    searches = [MeshTool(f"search_{name}", offered=agent) for name in collections or ()]
    return [*named, *searches, *(MeshTool(source=name) for name in sources or ())]


def _mesh_tool(given: str, offered: bool) -> MeshTool:
    """`NAME`, or `NAME=JSON` with its arguments."""
    from hedgerow import MeshTool

    name, _, arguments = given.partition("=")
    if arguments and offered:
        raise typer.BadParameter(f"{name}: with --agent the model chooses the arguments", param_hint="--tool")
    return MeshTool(name, json_text(arguments, "--tool") if arguments else None, offered)


def read_tool(file: Path) -> Tool:
    """The tool that a file describes, plain or as chat APIs wrap it."""
    import json

    from hedgerow import Tool

    described = json.loads(json_text(str(file), "--tool"))
    described = described.get("function", described)
    known = {"name", "description", "parameters", "strict"}
    if "name" not in described or not known.issuperset(described):
        got = ", ".join(described) or "nothing"
        raise typer.BadParameter(f"{file}: name, description, parameters and strict, got {got}", param_hint="--tool")
    return Tool(**described)
