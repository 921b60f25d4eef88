"""`hedgerow status`: is everything serving?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hedgerow.cli import options

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_S = 0.6


def status(state_dir: options.StateDir = Path(".hedgerow"), as_json: options.AsJson = False) -> None:
    """Show the health of every service.

    Asks the services of the mesh that `hedgerow up` started from this folder, else the default addresses. Exits with 0
    only when all of them serve.

    \b
    Example:
      hedgerow status --json | jq '.services[] | select(.health != "SERVING")'
    """
    import asyncio
    import json

    addresses = known_addresses(state_dir)
    health = asyncio.run(_ask_all(addresses))
    services = [{"name": name, "address": addresses[name], "health": health[name]} for name in addresses]
    if as_json:
        print(json.dumps({"services": services}))
    else:
        _print(services)
    raise typer.Exit(any(service["health"] != "SERVING" for service in services))


def known_addresses(state_dir: Path) -> dict[str, str]:
    """Address by name: of the mesh that runs in `state_dir`, else the defaults."""
    import json

    from hedgerow.cli.mesh import DEFAULT_BASE_PORT, MESH_FILE, SERVICES

    try:
        services = json.loads((state_dir / MESH_FILE).read_text())["services"]
    except FileNotFoundError:
        return {name: f"127.0.0.1:{DEFAULT_BASE_PORT + offset}" for offset, name in enumerate(SERVICES)}
    return {service["name"]: service["address"] for service in services}


async def _ask_all(addresses: Mapping[str, str]) -> dict[str, str]:
    import asyncio

    from hedgerow.cli.processes import check_health

    answers = await asyncio.gather(*(check_health(address, TIMEOUT_S) for address in addresses.values()))
    return dict(zip(addresses, answers, strict=True))


def _print(services: list[dict[str, str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("service", "address", "health", box=None)
    for service in services:
        colour = "green" if service["health"] == "SERVING" else "red"
        table.add_row(service["name"], service["address"], Text(service["health"], colour))
    Console(highlight=False).print(table)
