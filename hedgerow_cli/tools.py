"""`hedgerow tools`: the tools that the gateway can call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from hedgerow_cli import options
from hedgerow_cli.connection_options import Reach, to_gateway
from hedgerow_cli.option_groups import with_options

if TYPE_CHECKING:
    from rich.table import Table

    from hedgerow import ListedTool, ToolSource


@with_options(reach=to_gateway)
def tools(as_json: options.AsJson = False, *, reach: Reach) -> None:
    """List the mesh tools that you may use, with their sources and problems.

    Exits with 1 if a tool or a source has a problem.

    \b
    Examples:
      hedgerow tools
      hedgerow tools --json | jq -r '.tools[].name'
    """
    import json
    from dataclasses import asdict

    from hedgerow import Client
    from hedgerow_cli.failures import reported
    from hedgerow_cli.terminal import PlainConsole

    with reported(as_json), Client(**reach) as client:
        found, sources = client.tools()
    if as_json:
        listing = {"tools": [asdict(tool) for tool in found], "sources": [asdict(source) for source in sources]}
        print(json.dumps(listing))
    else:
        PlainConsole().print(_table(found, sources))
    raise typer.Exit(any(tool.problem for tool in found) or any(source.problem for source in sources))


def _table(found: tuple[ListedTool, ...], sources: tuple[ToolSource, ...]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for tool in found:
        reuse = f"reused for {tool.reusable_ms / 1000:g} s" if tool.reusable_ms else ""
        asked = f"question: {tool.question_argument}" if tool.question_argument else ""
        state = Text(tool.problem, "red") if tool.problem else Text("ok", "green")
        table.add_row(Text(tool.name, "bold"), tool.source, state, " · ".join(filter(None, [asked, reuse])))
    for source in sources:
        table.add_row("", Text(source.name, "dim"), Text(source.problem, "red"), source.kind)
    if not (found or sources):
        table.add_row("There are none that you may use: see the gateway's setting `tools`.")
    return table
