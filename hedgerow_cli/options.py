"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from hedgerow_cli import running

if TYPE_CHECKING:
    from hedgerow import Tls


class PolicyName(StrEnum):
    """When a word that is being spoken counts as sure."""

    WINDOWS = "windows"
    LOCAL_AGREEMENT = "local-agreement"


# A spent budget is no failure, because the command asked for it; nor is an answer that the guard ended.
COMPLETE = ("stop", "length", "budget", "tool_calls", "content_filter")
_RUNNING = "Without it: of the mesh that runs from this folder, or else"
Gateway = Annotated[
    str,
    typer.Option(
        envvar="HEDGEROW_TARGET",
        metavar="HOST:PORT",
        help=f"The gateway to ask. {_RUNNING} as below.",
        callback=running.address_of("gateway"),
    ),
]
ApiKey = Annotated[
    str | None, typer.Option(envvar="HEDGEROW_API_KEY", help="The key of the tenant, where the gateway needs one.")
]
UseTls = Annotated[
    bool, typer.Option("--tls", envvar="HEDGEROW_TLS", help="Use TLS, with the authorities that the machine trusts.")
]
CaFile = Annotated[
    Path | None,
    typer.Option(envvar="HEDGEROW_TLS_CA", metavar="FILE", help="Use TLS, with the authority in this PEM file."),
]
TlsDir = Annotated[
    Path | None,
    typer.Option(
        envvar="HEDGEROW_TLS_DIR",
        metavar="DIR",
        help="The caller's identity: a folder with tls.crt, tls.key and ca.crt, as hedgerow certs makes them.",
    ),
]
PlaintextKey = Annotated[
    bool,
    typer.Option(
        "--plaintext-key",
        envvar="HEDGEROW_PLAINTEXT_KEY",
        help="Send the API key to another machine without TLS, where the network can read it.",
    ),
]
Model = Annotated[str | None, typer.Option(metavar="NAME", help="One model by name; overrules the router.")]
System = Annotated[str | None, typer.Option(metavar="TEXT", help="Instructions for the model.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout, also on errors.")]
StateDir = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        help="Where a mesh keeps logs, the cache's database and mesh.json. Without it: of the mesh that runs from this "
        "folder.",
        callback=running.the_folder,
    ),
]
OwnStateDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where logs, the cache's database and mesh.json are kept. Without it: .hedgerow for the demo, "
        ".hedgerow/meshes/NAME beside NAME.yaml, and .hedgerow/meshes/NAME.yml beside NAME.yml.",
    ),
]
Schema = Annotated[
    str | None,
    typer.Option(
        "--json-schema", metavar="JSON|FILE", help="A JSON Schema, or a file with one: the answer matches it."
    ),
]
Choice = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="A text that the answer may be, and it is one of them. Given several times."),
]
Grammar = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, metavar="FILE", help="A grammar, Lark's or GBNF: the answer is of it."),
]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tool",
        metavar="NAME[=JSON]|FILE",
        help="A tool of the mesh, called with these arguments or with the question; or a file with one of your own "
        "that the model may call: name, description and parameters (a JSON Schema), as chat APIs have it. May be given "
        "several times.",
    ),
]
Mcp = Annotated[
    list[str] | None,
    typer.Option("--mcp", metavar="SOURCE", help="Offer the model all tools of a source that the gateway knows."),
]
Collections = Annotated[
    list[str] | None,
    typer.Option("--collection", metavar="NAME", help="Search a collection with the question: the tool search_NAME."),
]
Agent = Annotated[
    bool, typer.Option("--agent", help="Offer the tools of the mesh to the model, which calls them as it sees fit.")
]
ToolChoice = Annotated[
    str | None, typer.Option(metavar="CHOICE", help="auto, none, required, or the name of the tool to call.")
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
VisionService = Annotated[
    str,
    typer.Option(
        "--vision",
        envvar="HEDGEROW_TARGET_VISION",
        metavar="HOST:PORT",
        help=f"The vision service. {_RUNNING} as below.",
        callback=running.address_of("vision"),
    ),
]
AudioService = Annotated[
    str,
    typer.Option(
        envvar="HEDGEROW_TARGET_AUDIO",
        metavar="HOST:PORT",
        help=f"The audio service. {_RUNNING} as below.",
        callback=running.address_of("audio"),
    ),
]
JsonLines = Annotated[
    bool,
    typer.Option("--json", help="Print exactly one JSON object on stdout, also on errors; with --stream, one a line."),
]


class Reach(TypedDict):
    """Address, key and TLS of a client: `Client(**reach)`."""

    target: str
    api_key: str | None
    tls: Tls | None
    allow_plaintext_key: bool


def reach(
    target: str,
    service: str,
    api_key: str | None = None,
    use_tls: bool = False,
    ca_file: Path | None = None,
    tls_dir: Path | None = None,
    plaintext_key: bool = False,
) -> Reach:
    """The options of a command that asks `service`, put together."""
    if tls_dir and (use_tls or ca_file):
        raise typer.BadParameter("its ca.crt is the authority; leave --tls and --ca-file out", param_hint="--tls-dir")
    tls = _tls(service, use_tls, ca_file, tls_dir)
    return {"target": target, "api_key": api_key, "tls": tls, "allow_plaintext_key": plaintext_key}


def _tls(service: str, use_tls: bool, ca_file: Path | None, tls_dir: Path | None) -> Tls | None:
    if not (use_tls or ca_file or tls_dir):  # plain text, the usual case, loads nothing
        return None
    from hedgerow import HedgerowError, Tls

    tls = Tls.from_folder(tls_dir, service) if tls_dir else Tls(ca_file)
    try:
        tls.pem()
    except HedgerowError as error:
        raise typer.BadParameter(error.message) from None
    return tls
