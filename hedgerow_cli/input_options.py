"""Options whose values name JSON text, files, tools of the mesh and of the caller."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hedgerow import MeshTool, Options, Tool

_MESH_TOOL = re.compile(r"[A-Za-z0-9_-]{1,64}(=.*)?", re.DOTALL)


@dataclass(frozen=True)
class FormOptions:
    """The group of options for the form of an answer."""

    json_schema: Annotated[
        str | None,
        typer.Option(
            "--json-schema", metavar="JSON|FILE", help="A JSON Schema, or a file with one: the answer matches it."
        ),
    ] = None
    choice: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A permitted answer, given several times: the answer is one of them."),
    ] = None
    grammar: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="A grammar that the answer follows: Lark's notation or GBNF.",
        ),
    ] = None

    def as_options(self) -> Options:
        """As the SDK takes them. Raises `BadParameter`."""
        return {
            "json_schema": json_text(self.json_schema, "--json-schema") if self.json_schema else None,
            "choice": self.choice or None,
            "grammar": text_of(self.grammar, "--grammar") if self.grammar else None,
        }


@dataclass(frozen=True)
class ToolOptions:
    """The group of options for tools."""

    tool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=JSON]|FILE",
            help="A tool of the mesh, called with these arguments or with the question; or a file with one of your own "
            "that the model may call: name, description and parameters (a JSON Schema), as chat APIs have it. May be "
            "given several times.",
        ),
    ] = None
    tool_choice: Annotated[
        str | None, typer.Option(metavar="CHOICE", help="auto, none, required, or the name of the tool to call.")
    ] = None
    mcp: Annotated[
        list[str] | None,
        typer.Option(metavar="SOURCE", help="Offer the model all tools of a source that the gateway knows."),
    ] = None
    collection: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Search a collection with the question: the tool search_NAME."),
    ] = None
    agent: Annotated[
        bool, typer.Option("--agent", help="Offer the tools of the mesh to the model, which decides on calls.")
    ] = False

    def as_options(self) -> Options:
        """As the SDK takes them. Raises `BadParameter`."""
        return {
            "tools": own_tools(self.tool),
            "mesh_tools": mesh_tools(self.tool, self.mcp, self.collection, agent=self.agent),
            "tool_choice": self.tool_choice,
        }


def json_text(given: str, option: str) -> str:
    """JSON text that was given, or is in the file that was named."""
    from hedgerow._shapes import loads

    try:
        text = given if given.lstrip().startswith("{") else Path(given).read_text("utf-8")
        if not isinstance(loads(text), dict):
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
