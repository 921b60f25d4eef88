"""`hedgerow bench`: the measurements behind the numbers, from a source checkout."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from hedgerow_cli import options

_ROOT = Path(__file__).parents[1]


def bench(
    name: Annotated[str, typer.Argument(help="The bench. Without it, the names are listed.")] = "",
    as_json: options.AsJson = False,
    entries: Annotated[int | None, typer.Option(min=1_000, metavar="N", help="For `cache`: number of entries.")] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, metavar="FILE", help="For `cache`: labelled pairs, .jsonl.gz."),
    ] = None,
    verdicts: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="For `cache` with --pairs: number of verdicts before the measurement."),
    ] = None,
) -> None:
    """Measure something, and print the figures. Progress goes to stderr.

    \b
    Examples:
      hedgerow bench
      hedgerow bench overhead --json
      hedgerow bench cache --entries 1000000
      hedgerow bench cache --pairs pairs.jsonl.gz --verdicts 2000
    """
    import json

    from hedgerow_cli.failures import fail

    known = benches(_ROOT / "bench")
    if not known:
        fail("benches come with the source checkout, and this is not one", "NO_BENCH", as_json)
    if not name:
        lines = [f"{each:12} {title}" for each, title in known.items()]
        print(json.dumps({"benches": known}) if as_json else "\n".join(lines))
    elif name not in known:
        fail(f"no bench {name}; there are: {', '.join(known)}", "NO_BENCH", as_json)
    else:
        given = {"entries": entries, "pairs": pairs, "verdicts": verdicts}
        _run(name, as_json, {option: value for option, value in given.items() if value is not None})


def benches(folder: Path) -> dict[str, str]:
    """Name and first line of each module or package that has an asynchronous `run`."""
    found = {}
    for path in sorted((*folder.glob("*.py"), *folder.glob("*/__init__.py"))):
        module = ast.parse(path.read_text("utf-8"))
        if any(isinstance(node, ast.AsyncFunctionDef) and node.name == "run" for node in module.body):
            name = path.parent.name if path.name == "__init__.py" else path.stem
            found[name] = (ast.get_docstring(module) or "").partition("\n")[0]
    return dict(sorted(found.items()))


def _run(name: str, as_json: bool, given: Mapping[str, object]) -> None:
    import asyncio
    import inspect
    import json

    from rich.console import Console

    from hedgerow_cli.failures import fail

    sys.path.insert(0, str(_ROOT))
    module = import_module(f"bench.{name}")
    if unknown := given.keys() - inspect.signature(module.run).parameters:
        options = ", ".join(f"--{option}" for option in sorted(unknown))
        fail(f"bench {name} has no option {options}", "NO_OPTION", as_json)
    try:
        result = asyncio.run(module.run(lambda line: print(line, file=sys.stderr, flush=True), **given))
    except getattr(module, "REFUSED", ()) as error:
        fail(str(error), "REFUSED", as_json)
    if as_json:
        print(json.dumps(result))
    else:
        Console().print(import_module("bench.tables").tables(result))
