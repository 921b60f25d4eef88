"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hedgerow_cli import running


class PolicyName(StrEnum):
    """When a word that is being spoken counts as sure."""

    WINDOWS = "windows"
    LOCAL_AGREEMENT = "local-agreement"


# A spent budget is no failure, because the command asked for it; nor is an answer that the guard ended.
COMPLETE = ("stop", "length", "budget", "tool_calls", "content_filter")
ApiKey = Annotated[
    str | None, typer.Option(envvar="HEDGEROW_API_KEY", help="The key of the tenant, where the gateway needs one.")
]
TlsDir = Annotated[
    Path | None,
    typer.Option(
        envvar="HEDGEROW_TLS_DIR",
        metavar="DIR",
        help="The caller's identity: a folder with tls.crt, tls.key and ca.crt, as hedgerow certs makes them.",
    ),
]
Model = Annotated[str | None, typer.Option(metavar="NAME", help="One model by name; overrules the router.")]
System = Annotated[str | None, typer.Option(metavar="TEXT", help="Instructions for the model.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout, also on errors.")]
StateDir = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        help="Where a mesh keeps logs, the cache's database and running.json. Without it: of the mesh that runs from "
        "this folder.",
        callback=running.the_folder,
    ),
]
OwnStateDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where logs, the cache's database and running.json are kept. Without it: .hedgerow for the demo, "
        ".hedgerow/meshes/NAME beside NAME.yaml, and .hedgerow/meshes/NAME.yml beside NAME.yml.",
    ),
]
Images = Annotated[
    list[Path] | None,
    typer.Option("--image", metavar="FILE", help="A picture that belongs to the question; may be given several times."),
]
Audio = Annotated[Path | None, typer.Option(metavar="FILE", help="A recording that is, or belongs to, the question.")]
PauseMs = Annotated[
    int | None,
    typer.Option(metavar="N", help="With --stream: the silence that ends what is said, 100 to 5000 milliseconds."),
]
JsonLines = Annotated[
    bool,
    typer.Option("--json", help="Print exactly one JSON object on stdout, also on errors; with --stream, one a line."),
]
