"""`hedgerow up`: the demo mesh on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hedgerow.cli import options

if TYPE_CHECKING:
    from rich.console import Console

    from hedgerow.cli.processes import ServiceSpec

DEFAULT_TARGET = "127.0.0.1:50050"


def up(
    base_port: Annotated[
        int, typer.Option(metavar="PORT", min=1, max=65531, help="The gateway's port; the others take the next four.")
    ] = 50050,
    state_dir: options.StateDir = Path(".hedgerow"),
    otlp_endpoint: Annotated[str, typer.Option(metavar="URL", help="Where to send traces, http://host:port.")] = "",
) -> None:
    """Start the demo mesh here, and keep it running.

    Five processes: gateway, cache, router and two llm services with the demo models. One that ends is started again.
    Ctrl-C stops them all.

    \b
    Examples:
      hedgerow up
      hedgerow up --base-port 6000 --otlp-endpoint http://127.0.0.1:4317
    """
    import asyncio

    from rich.console import Console

    from hedgerow.cli.failures import fail
    from hedgerow.cli.mesh import MeshError, PortInUse, default_models_dir, demo_mesh
    from hedgerow.cli.processes import ServiceFailed

    try:
        specs = demo_mesh(base_port, state_dir, default_models_dir(), otlp_endpoint=otlp_endpoint)
        asyncio.run(_run(specs, state_dir, Console(highlight=False)))
    except PortInUse as error:
        fail(f"{error}; choose others, for example: hedgerow up --base-port {base_port + 1000}")
    except (MeshError, ServiceFailed) as error:
        fail(str(error))


async def _run(specs: list[ServiceSpec], state_dir: Path, console: Console) -> None:
    import asyncio

    from hedgerow.cli.board import Board, started
    from hedgerow.cli.signals import cancelled_by_signals

    board = Board(console, [spec.name for spec in specs])
    with cancelled_by_signals():
        async with started(specs, state_dir, board) as mesh:
            console.print(board.services(mesh))
            console.print(_next_steps(specs[-1].address), markup=False, soft_wrap=True)
            await asyncio.Event().wait()


def _next_steps(gateway: str) -> str:
    where = "" if gateway == DEFAULT_TARGET else f" --gateway {gateway}"
    return f"""
Try, in another terminal:
  hedgerow ask{where} "What is the capital of France?"
  hedgerow ask{where} --budget-ms 300 "Tell me a long story about a fox."

Ctrl-C stops everything.
"""
