"""All commands in one place. Each loads what it needs when it runs, so that `--help` answers at once."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from hedgerow_cli.ask import ask
from hedgerow_cli.bench import bench
from hedgerow_cli.cache import cache
from hedgerow_cli.certs import certs
from hedgerow_cli.chat import chat
from hedgerow_cli.check import check
from hedgerow_cli.classify import classify
from hedgerow_cli.collection import collection
from hedgerow_cli.config import config
from hedgerow_cli.control_status import mesh
from hedgerow_cli.demo import demo
from hedgerow_cli.down import down
from hedgerow_cli.init import init
from hedgerow_cli.keys import keys
from hedgerow_cli.logs import logs
from hedgerow_cli.models import models
from hedgerow_cli.render import render
from hedgerow_cli.served import served
from hedgerow_cli.status import status
from hedgerow_cli.tools import tools
from hedgerow_cli.transcribe import transcribe
from hedgerow_cli.up import up
from hedgerow_cli.warm import warm

app = typer.Typer(
    help="A latency mesh for AI inference: answers under an explicit time budget.",
    epilog='Start with `hedgerow up`, and in another terminal `hedgerow ask "What can you do?"`.',
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help is short and needs no rich
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"hedgerow {version('hedgerow')}")
        raise typer.Exit


@app.callback()
def _main(
    shown: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options before a command."""


for command in (
    init,
    check,
    up,
    down,
    logs,
    render,
    ask,
    chat,
    transcribe,
    classify,
    tools,
    warm,
    status,
    certs,
    demo,
    bench,
):
    app.command()(command)
app.add_typer(cache, name="cache")
app.add_typer(collection, name="collection")
app.add_typer(mesh, name="mesh")
models.command("served")(served)
app.add_typer(models, name="models")
app.add_typer(keys, name="keys")
app.add_typer(config, name="config")
