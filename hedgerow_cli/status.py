"""`hedgerow status`: is everything serving?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hedgerow_cli import options, running
from hedgerow_cli.load import loads
from hedgerow_cli.served import http_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hedgerow_cli.load import Load

TIMEOUT_S = 2.0


def status(
    state_dir: options.StateDir = Path(".hedgerow"), tls_dir: options.TlsDir = None, as_json: options.AsJson = False
) -> None:
    """Show the health of every service, and how busy each model is.

    Asks the services of the mesh that `hedgerow up` started from this folder, else the default addresses. Exits with 0
    only when all of them serve, and no request to a model's provider fails. Where services authenticate each other,
    --tls-dir is the caller's identity.

    Of a model of the mesh that runs from this folder: calls in flight, requests that wait, and the most calls at once,
    in one worker of the gateway. A gateway whose callers need keys does not say.

    \b
    Example:
      hedgerow status --json | jq '.services[] | select(.health != "SERVING")'
    """
    import asyncio
    import json

    from hedgerow_cli.failures import fail, needs

    with needs("launcher", as_json):
        services = asyncio.run(ask_all(state_dir, tls_dir))
    busy = loads(http_of(state_dir)) if any(each.get("http") for each in running.services(state_dir)) else {}
    if as_json:
        models = [
            {"name": n, "in_flight": m.in_flight, "waiting": m.waiting, "limit": m.limit} for n, m in busy.items()
        ]
        print(json.dumps({"services": services, "models": models}))
    elif running.services(state_dir) or any(service["health"] != "UNREACHABLE" for service in services):
        show(services, busy)
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


def show(services: Sequence[Mapping[str, str]], busy: Mapping[str, Load]) -> None:
    """Print the health of services and how busy models are, then which services do not answer and what is wrong."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("service", "address", "health", box=None)
    for service in services:
        colour = "red" if service["health"] != "SERVING" else "yellow" if "problem" in service else "green"
        table.add_row(service["name"], service["address"], Text(service["health"], colour))
    console = Console(highlight=False)
    console.print(table)
    if busy:
        figures = Table("model", "in flight", "waiting", "limit", box=None)
        for name, load in busy.items():
            figures.add_row(Text(name), *map(str, (load.in_flight, load.waiting, load.limit)))
        console.print(figures)
    for service in services:
        if service["health"] == "UNREACHABLE":
            console.print(f"{service['name']} at {service['address']}: no answer within {TIMEOUT_S:g} s", style="red")
        if problem := service.get("problem"):
            console.print(problem, style="yellow", markup=False, soft_wrap=True)
