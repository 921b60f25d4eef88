"""`hedgerow mesh status`: the control plane's view of the mesh."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow_cli import options, running
from hedgerow_cli.connection_options import CallerCredentials

if TYPE_CHECKING:
    from hedgerow._peer import Peer
    from hedgerow.control.v1 import control_pb2

TIMEOUT_S = 2.0
EVERY_S = 1.0  # with --watch
_SILENT = ("NO_CONTROL_PLANE", "CLIENT_DEADLINE", "CONNECTION_LOST")  # errors of a control plane that does not answer
_UNFOLDED = 1_000  # columns: into a file or a pipe, one endpoint is one line
DEFAULT_CONTROL = "127.0.0.1:50060"

mesh = typer.Typer(help="Look at a mesh through its control plane.", no_args_is_help=True, rich_markup_mode=None)


@mesh.callback()
def _mesh() -> None:
    """Show a mesh as its control plane sees it."""


@mesh.command()
def status(
    control: Annotated[
        str,
        typer.Option(
            envvar="HEDGEROW_TARGET_CONTROL",
            metavar="HOST:PORT",
            help="The control plane to ask. Without it, that of the mesh that runs from --state-dir.",
        ),
    ] = "",
    state_dir: options.StateDir = Path(".hedgerow"),
    tls_dir: options.TlsDir = None,
    as_json: options.AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", help="Ask again every second, until Ctrl-C.")] = False,
) -> None:
    """Show every endpoint with its health, and the configuration of each client.

    For an endpoint: its health, for how long, and whether clients may use it. For a client: the services that it
    follows, and its version of each type of xDS resource (LDS listeners, RDS routes, CDS clusters, EDS endpoints):
    green if it is the latest, yellow until the client has acknowledged it, red if the client refused it.

    Exits with 0 only if every endpoint serves, no client refuses its configuration, and the present topology file is in
    force. If the control plane does not answer, the services of the mesh that runs from --state-dir are asked directly.

    \b
    Examples:
      hedgerow mesh status --watch
      hedgerow mesh status --control 127.0.0.1:50060 --json | jq -r '.problems[]'
    """
    import asyncio

    from hedgerow import HedgerowError
    from hedgerow._peer import Peer
    from hedgerow_cli.failures import reported

    reach = CallerCredentials(tls_dir=tls_dir).at(control or known_control(state_dir), "control")
    peer = Peer(reach["target"], service="control plane", tls=reach["tls"])
    known = [each["address"] for each in running.services(state_dir)]
    with reported(as_json):
        try:
            well = asyncio.run(_watch(peer, as_json) if watch else _show(peer, as_json))
        except HedgerowError as error:
            if error.reason not in _SILENT or peer.target not in known:
                raise
            asyncio.run(_show_services(peer, state_dir, tls_dir, as_json))
            well = False
    raise typer.Exit(not well)


def known_control(state_dir: Path) -> str:
    """The control plane of the mesh that runs in `state_dir`, else the default address."""
    from hedgerow_cli.status import known_addresses

    try:
        return known_addresses(state_dir).get("control", DEFAULT_CONTROL)
    except ModuleNotFoundError:  # without the launcher no mesh runs there
        return DEFAULT_CONTROL


async def get_mesh(peer: Peer) -> control_pb2.GetMeshResponse:
    """The control plane's state. Raises `HedgerowError`; `NO_CONTROL_PLANE` where it does not answer."""
    import grpc

    from hedgerow._status import from_rpc_error
    from hedgerow.channel import open_channel
    from hedgerow.control.v1 import control_pb2, control_pb2_grpc

    async with open_channel(peer.target, tls=peer.tls) as channel:
        stub: Any = control_pb2_grpc.ControlServiceStub(channel)  # type: ignore[no-untyped-call]
        try:
            seen: control_pb2.GetMeshResponse = await stub.GetMesh(control_pb2.GetMeshRequest(), timeout=TIMEOUT_S)
            return seen
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, peer, TIMEOUT_S) from None


async def _show(peer: Peer, as_json: bool, clear: bool = False) -> bool:
    """Print it once; whether all is well."""
    import json
    import sys

    from hedgerow_cli.mesh_view import as_data, as_tables, problems
    from hedgerow_cli.terminal import PlainConsole

    seen = await get_mesh(peer)
    if as_json:
        print(json.dumps(as_data(seen)), flush=True)
    else:
        console = PlainConsole(width=None if sys.stdout.isatty() else _UNFOLDED)
        if clear:
            console.clear()  # nothing, where this is no terminal
        console.print(as_tables(seen))
    return not problems(seen)


async def _show_services(peer: Peer, state_dir: Path, tls_dir: Path | None, as_json: bool) -> None:
    """Print what the services say themselves, because the control plane does not answer."""
    import json

    from hedgerow_cli.failures import notify
    from hedgerow_cli.status import ask_all, show

    message = f"the control plane at {peer.target} gave no answer within {TIMEOUT_S:g} s"
    services = await ask_all(state_dir, tls_dir)
    if as_json:
        error = {"code": "UNAVAILABLE", "reason": "NO_CONTROL_PLANE", "message": message}
        print(json.dumps({"error": error, "services": services}))
        return
    notify(f"{message}; clients keep the configuration that they have. The services themselves:")
    show(services)


async def _watch(peer: Peer, as_json: bool) -> bool:
    """Print the state again and again until a signal; whether all was well in the end."""
    import asyncio

    from hedgerow import HedgerowError
    from hedgerow_cli.failures import explain, notify
    from hedgerow_cli.signals import cancelled_by_signals

    well = False
    with cancelled_by_signals():
        while True:
            try:
                well = await _show(peer, as_json, clear=True)
            except HedgerowError as error:  # it may come back
                well = False
                notify(explain(error))
            await asyncio.sleep(EVERY_S)
    return well
