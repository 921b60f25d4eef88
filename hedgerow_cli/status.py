"""`hedgerow status`: health, traffic and errors of a mesh."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow_cli import options, running
from hedgerow_cli.served import here, http_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hedgerow_cli.traffic import GatewayTraffic

TIMEOUT_S = 2.0


def status(
    state_dir: options.StateDir = Path(".hedgerow"),
    tls_dir: options.TlsDir = None,
    over: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            max=60,
            help="Seconds in which requests are counted; 0: since the start of the gateway.",
        ),
    ] = 1.0,
    as_json: options.AsJson = False,
) -> None:
    """Show the health of every service, the requests per second with p50 and p99, and errors.

    Asks the services of the mesh that `hedgerow up` started from this folder, else the default addresses. Exits with 0
    only if all of them serve, and no request to a model's provider fails. If services authenticate each other,
    --tls-dir is the caller's identity.

    For the mesh that runs from this folder, and for each tenant and model with traffic: the requests that ended within
    --over, the errors among them, and p50 and p99 of the others, interpolated within the buckets of the gateway's
    histograms. If no request ended within it, the time since the start of the gateway counts. For a model also: calls
    in flight, waiting requests, and the limit of calls in flight.

    \b
    Examples:
      hedgerow status --over 10
      hedgerow status --json | jq '.services[] | select(.health != "SERVING")'
    """
    import asyncio
    import json

    from hedgerow_cli.failures import fail, needs, notify

    with needs("launcher", as_json):
        services, traffic = asyncio.run(_ask_mesh(state_dir, tls_dir, over))
    if as_json:
        print(json.dumps({"services": services, **(traffic.as_object() if traffic else {"models": []})}))
    elif running.services(state_dir):
        show(services, traffic)
    elif any(service["health"] != "UNREACHABLE" for service in services):
        notify(f"no mesh runs here (state folder {state_dir}); asked the default address of each service")
        show(services, traffic)
    else:
        fail(f'no mesh runs here (state folder {state_dir}); start one with "hedgerow up"')
    raise typer.Exit(any(service["health"] != "SERVING" or "problem" in service for service in services))


def known_addresses(state_dir: Path) -> dict[str, str]:
    """Address by name: of the mesh that runs in `state_dir`, else the defaults."""
    return {service["name"]: service["address"] for service in known_services(state_dir)}


def known_services(state_dir: Path) -> list[dict[str, str]]:
    """`name`, `address`, and the protocol that it `speaks`: of the mesh that runs in `state_dir`, else the defaults."""
    from launcher.demo import SERVICES
    from launcher.mesh import DEFAULT_BASE_PORT

    ports = enumerate(SERVICES, DEFAULT_BASE_PORT)
    default = [{"name": name, "address": f"127.0.0.1:{port}"} for port, name in ports]
    services = running.services(state_dir) or default
    return [{"name": s["name"], "address": s["address"], "speaks": s.get("speaks", "grpc")} for s in services]


def metrics_of(state_dir: Path) -> list[str]:
    """The pages of metrics of the gateways that run from this folder: each worker's own page. Where workers have none,
    the page of the HTTP API, which shows the figures of one worker, and none where callers need keys."""
    listed = running.services(state_dir)
    own = [f"http://{here(address)}/metrics" for service in listed for address in service.get("metrics", ())]
    return own or [f"{http_of(state_dir)}/metrics" for service in listed if service.get("http")][:1]


async def _ask_mesh(
    state_dir: Path, tls_dir: Path | None, over_s: float
) -> tuple[list[dict[str, str]], GatewayTraffic | None]:
    """The health of the services, and the traffic meanwhile."""
    import asyncio

    from hedgerow_cli.traffic import watch

    watching = asyncio.to_thread(watch, metrics_of(state_dir), over_s)
    services, traffic = await asyncio.gather(ask_all(state_dir, tls_dir), watching)
    return services, traffic


async def ask_all(state_dir: Path, tls_dir: Path | None) -> list[dict[str, str]]:
    """`name`, `address` and `health` of each service of the mesh, and the `problem` of the model that it serves, if
    there is one."""
    import asyncio

    from hedgerow import Tls
    from launcher.outages import model_state
    from launcher.processes import check

    def tls(name: str) -> Tls | None:
        identity = "edge" if name == "envoy" else name.partition("-")[0]
        return Tls.from_folder(tls_dir, identity) if tls_dir else None

    async def ask(name: str, speaks: Any, address: str) -> dict[str, str]:
        health = await check(speaks, address, TIMEOUT_S, tls(name))
        asked = {"name": name, "address": address, "health": health}
        if health != "SERVING" or name.partition("-")[0] != "llm":
            return asked
        state = await model_state(address, TIMEOUT_S, tls(name))
        return {**asked, "problem": state.problem} if state and state.problem else asked

    return await asyncio.gather(*(ask(**service) for service in known_services(state_dir)))


def show(services: Sequence[Mapping[str, str]], traffic: GatewayTraffic | None = None) -> None:
    """Print the health of services and the traffic, then which services do not answer and what is wrong."""
    from rich.table import Table
    from rich.text import Text

    from hedgerow_cli.terminal import PlainConsole
    from hedgerow_cli.traffic_view import tables

    table = Table("service", "address", "health", box=None)
    for service in services:
        colour = "red" if service["health"] != "SERVING" else "yellow" if "problem" in service else "green"
        table.add_row(service["name"], service["address"], Text(service["health"], colour))
    console = PlainConsole()
    console.print(table)
    for each in tables(traffic) if traffic else ():
        console.print(each)
    for service in services:
        if service["health"] == "UNREACHABLE":
            console.print(f"{service['name']} at {service['address']}: no answer within {TIMEOUT_S:g} s", style="red")
        if problem := service.get("problem"):
            console.print(problem, style="yellow", soft_wrap=True)
    for warning in traffic.warnings if traffic else ():
        console.print(warning, style="yellow", soft_wrap=True)
