"""`hedgerow bench`: the measurements behind the numbers, from a source checkout."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from hedgerow.cli import options

_ROOT = Path(__file__).parents[2]


def bench(
    name: Annotated[str, typer.Argument(help="Which one. Without it, the names are listed.")] = "",
    as_json: options.AsJson = False,
) -> None:
    """Measure something, and print the figures. Progress goes to stderr.

    \b
    Examples:
      hedgerow bench
      hedgerow bench overhead --json
    """
    from hedgerow.cli.failures import fail

    known = benches(_ROOT / "bench")
    if not known:
        fail("benches come with the source checkout, and this is not one")
    if not name:
        for each, title in known.items():
            print(f"{each:12} {title}")
    elif name not in known:
        fail(f"no bench {name}; there are: {', '.join(known)}")
    else:
        _run(name, as_json)


def benches(folder: Path) -> dict[str, str]:
    """Name and first line of each module or package that has `run` and `table`."""
    found = {}
    for path in sorted((*folder.glob("*.py"), *folder.glob("*/__init__.py"))):
        module = ast.parse(path.read_text())
        functions = {node.name for node in module.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        if functions >= {"run", "table"}:
            name = path.parent.name if path.name == "__init__.py" else path.stem
            found[name] = (ast.get_docstring(module) or "").partition("\n")[0]
    return dict(sorted(found.items()))


def _run(name: str, as_json: bool) -> None:
    import asyncio
    import json

    from rich.console import Console

    sys.path.insert(0, str(_ROOT))
    module = import_module(f"bench.{name}")
    result = asyncio.run(module.run(lambda line: print(line, file=sys.stderr, flush=True)))
    if as_json:
        print(json.dumps(result))
    else:
        Console().print(module.table(result))
