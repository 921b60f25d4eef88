"""`hedgerow config`: shows services' settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from hedgerow.identities import CONTROL, GATEWAY, SERVICES
from hedgerow_cli import mesh_file, options, running

if TYPE_CHECKING:
    from rich.table import Table

_UNFOLDED = 1_000  # columns: into a file or a pipe, one setting is one line

config = typer.Typer(help="Look at the services' settings.", no_args_is_help=True, rich_markup_mode=None)

ServiceName = StrEnum("ServiceName", {name.upper(): name for name in SERVICES})  # type: ignore[misc]
_DEFAULT = ServiceName(GATEWAY)


@config.callback()
def _config() -> None:
    """Show services' settings."""


@config.command()
def explain(
    service: Annotated[ServiceName, typer.Argument(help="The service whose settings are shown.")] = _DEFAULT,
    budget_ms: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="For the gateway: the budget to split. Without it, its default budget."),
    ] = None,
    mesh: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The mesh file that starts it. Without it: mesh.yaml of this folder, if there is one."
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Print the settings with which a service would start here: value, unit, and source of each.

    They come from the mesh file, from this shell's environment (HEDGEROW_GATEWAY_… and so on), and from the YAML file
    that it names. Without a mesh file, and without variables for the service, they are those of the demo, or of
    "hedgerow up --mesh" for the control plane. For the gateway, its plan follows: the slice of the budget for each
    stage. Exits with 2 if the service would not start with these settings.

    \b
    Examples:
      hedgerow config explain
      hedgerow config explain llm --mesh mesh.yaml
      hedgerow config explain gateway --budget-ms 300 --json
    """
    import json
    from tempfile import TemporaryDirectory

    if budget_ms is not None and service != GATEWAY:
        raise typer.BadParameter("only the gateway splits a budget", param_hint="--budget-ms")
    with TemporaryDirectory(prefix="hedgerow-explain-") as folder:
        given = _given(service, mesh or mesh_file.here(), Path(folder), as_json)
        said, problem = _ask(service, budget_ms, given.environment)
    if problem:
        _refuse(problem, as_json)
    for row in said["settings"]:
        if row["source"] == "environment" and row["origin"] in given.environment:
            _as_up_does(row, given, folder)
    if as_json:
        print(json.dumps(said))
    else:
        _print(said)


@dataclass(frozen=True)
class _Given:
    """The settings of a service that a mesh adds to this shell's, the `source` that they have, and the state folder."""

    environment: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    state_dir: Path = running.FOLDER


def _given(service: ServiceName, file: Path | None, folder: Path, as_json: bool) -> _Given:
    if file:
        return _Given(_file_environment(service, file, folder, as_json), str(file), running.state_of(file))
    return _Given(_demo_environment(service, folder, as_json), f"hedgerow up{' --mesh' * (service == CONTROL)}")


def _file_environment(service: ServiceName, file: Path, folder: Path, as_json: bool) -> Mapping[str, str]:
    """The settings that the mesh file gives the service; of several models the last one's. `folder` stands in for the
    state folder."""
    import asyncio

    from hedgerow_cli.failures import fail

    with mesh_file.checked(as_json):
        from launcher.meshfile.planning import plan

        planned = asyncio.run(plan(file, folder))
        planned.write_files(folder)
    specs = [each for process in planned.specs for each in process.members or (process,)]
    own = [spec.environment for spec in specs if spec.name.partition("-")[0] == service]
    return own[-1] if own else fail(f"{file} starts no {service}", "NOT_STARTED", as_json)


def _demo_environment(service: ServiceName, folder: Path, as_json: bool) -> Mapping[str, str]:
    """The service's settings under `hedgerow up --demo` (the larger of the two models); empty when this shell sets
    some.

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
    (folder / TOPOLOGY_FILE).write_text(planned.topology(), "utf-8")
    return planned.control().environment


def _as_up_does(row: dict[str, Any], given: _Given, folder: str) -> None:
    """Name the mesh in the place of the environment, and its state folder in the place of ours."""
    row["source"] = given.source
    if isinstance(row["value"], str):
        row["value"] = row["value"].replace(folder, str(given.state_dir.resolve()))


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

    from hedgerow_cli.terminal import PlainConsole

    console = PlainConsole(width=None if sys.stdout.isatty() else _UNFOLDED)
    console.print(_settings_table(said["settings"]))
    if plan := said.get("plan"):
        whole, first = plan["budget_ms"], plan["first_text_ms"]
        console.print(f"\nA budget of {whole:g} ms, its first text within {first:g} ms:\n")
        console.print(_plan_table(plan["slices"]))
        if with_senses := plan.get("slices_with_senses"):
            console.print("\nThe same for requests with recordings and pictures:\n")
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
    table.add_column("latest start, ms", justify="right")
    table.add_column("guaranteed, ms", justify="right")
    for part in slices:
        table.add_row(part["stage"], f"{part['starts_ms']:g}", f"{part['budget_ms']:g}")
    return table
