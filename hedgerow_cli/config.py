"""`hedgerow config`: the settings that services would have here."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from hedgerow.identities import CONTROL, GATEWAY, SERVICES
from hedgerow_cli import options

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

_UNFOLDED = 1_000  # columns: into a file or a pipe, one setting is one line

config = typer.Typer(help="Look at the services' settings.", no_args_is_help=True, rich_markup_mode=None)

ServiceName = StrEnum("ServiceName", {name.upper(): name for name in SERVICES})  # type: ignore[misc]
_DEFAULT = ServiceName(GATEWAY)


@config.callback()
def _config() -> None:
    """Look at the services' settings."""


@config.command()
def explain(
    service: Annotated[ServiceName, typer.Argument(help="Whose settings.")] = _DEFAULT,
    budget_ms: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="For the gateway: the budget to split. Without it, its default budget."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Print the settings a service would start with here: value, unit, and where each comes from.

    They come from this shell's environment (HEDGEROW_GATEWAY_… and so on) and from the YAML file it names. Where it
    says nothing of the service, they are those of the mesh that "hedgerow up" starts, or "hedgerow up --mesh" for the
    control plane. For the gateway, its plan follows: what each stage gets of a budget. Exits with 2 when the service
    would not start with these settings.

    \b
    Examples:
      hedgerow config explain
      hedgerow config explain llm
      hedgerow config explain gateway --budget-ms 300 --json
    """
    import json
    from pathlib import Path
    from tempfile import TemporaryDirectory

    if budget_ms is not None and service != GATEWAY:
        raise typer.BadParameter("only the gateway splits a budget", param_hint="--budget-ms")
    with TemporaryDirectory(prefix="hedgerow-explain-") as folder:
        environment = _demo_environment(service, Path(folder), as_json)
        said, problem = _ask(service, budget_ms, environment)
    if problem:
        _refuse(problem, as_json)
    for row in said["settings"]:
        if environment and row["source"] == "environment":
            _as_up_does(row, service, folder)
    if as_json:
        print(json.dumps(said))
    else:
        _print(said)


def _demo_environment(service: ServiceName, folder: Path, as_json: bool) -> Mapping[str, str]:
    """The service's settings under `hedgerow up` (the larger of the two models); empty when this shell sets some.

    The control plane reads its topology before it accepts its settings: that of the demo is written into `folder`.
    """
    import os

    from hedgerow_cli.failures import needs

    with needs("demo", as_json):
        from launcher.demo import demo_mesh, public_models
        from launcher.mesh import DEFAULT_BASE_PORT, DEFAULT_STATE_DIR

    if any(name.upper().startswith(f"HEDGEROW_{service.upper()}_") for name in os.environ):
        return {}
    if service == CONTROL:
        return _control_environment(folder)
    specs = demo_mesh(DEFAULT_BASE_PORT, DEFAULT_STATE_DIR, public_models())
    return next(spec.environment for spec in reversed(specs) if spec.name.partition("-")[0] == service)


def _control_environment(folder: Path) -> Mapping[str, str]:
    from launcher.demo import public_models
    from launcher.mesh import DEFAULT_BASE_PORT
    from launcher.replicas import TOPOLOGY_FILE, ReplicatedMesh, ports_from

    planned = ReplicatedMesh(ports_from(DEFAULT_BASE_PORT, replicas=2), folder, public_models())
    (folder / TOPOLOGY_FILE).write_text(planned.topology())
    return planned.control().environment


def _as_up_does(row: dict[str, Any], service: ServiceName, folder: str) -> None:
    """Name the command in the place of the environment, and its state folder in the place of ours."""
    from launcher.mesh import DEFAULT_STATE_DIR

    row["source"] = "hedgerow up --mesh" if service == CONTROL else "hedgerow up"
    if isinstance(row["value"], str):
        row["value"] = row["value"].replace(folder, str(DEFAULT_STATE_DIR.resolve()))


def _ask(service: ServiceName, budget_ms: int | None, environment: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """(what the service's own code says of its settings, what is wrong with them). A process of its own reads them."""
    import json
    import os
    import subprocess
    import sys

    command = [sys.executable, "-m", "services.runtime.explain", service]
    if budget_ms is not None:
        command += ["--budget-ms", str(budget_ms)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if done.returncode:
        return {}, done.stderr.strip() or f"it ended with exit code {done.returncode}"
    return json.loads(done.stdout), ""


def _refuse(problem: str, as_json: bool) -> NoReturn:
    import json
    import sys

    if as_json:
        print(json.dumps({"error": {"code": "INVALID_ARGUMENT", "reason": "BAD_SETTINGS", "message": problem}}))
    else:
        print(problem, file=sys.stderr)
    raise typer.Exit(2)


def _print(said: Mapping[str, Any]) -> None:
    import sys

    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else _UNFOLDED)
    console.print(_settings_table(said["settings"]))
    if plan := said.get("plan"):
        whole, first = plan["budget_ms"], plan["first_text_ms"]
        console.print(f"\nA budget of {whole:g} ms, its first text within {first:g} ms:\n")
        console.print(_plan_table(plan["slices"]))
        if with_senses := plan.get("slices_with_senses"):
            console.print("\nThe same for what is spoken and shown:\n")
            console.print(_plan_table(with_senses))


def _settings_table(rows: list[dict[str, Any]]) -> Table:
    import json

    from rich.table import Table
    from rich.text import Text

    table = Table(box=None)
    table.add_column("setting", no_wrap=True)
    for name in ("value", "unit", "source"):
        table.add_column(name, overflow="fold")
    for row in rows:
        value = row["value"] if isinstance(row["value"], str) else json.dumps(row["value"])
        style = "dim" if row["source"] == "default" else ""
        cells = (row["setting"], value, row["unit"], f"{row['source']} {row['origin']}".strip())
        table.add_row(*(Text(cell) for cell in cells), style=style)
    return table


def _plan_table(slices: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    table = Table("stage", box=None)
    table.add_column("starts by, ms", justify="right")
    table.add_column("is sure of, ms", justify="right")
    for part in slices:
        table.add_row(part["stage"], f"{part['starts_ms']:g}", f"{part['budget_ms']:g}")
    return table
