"""Plans for `hedgerow up`: from a mesh file, for models that options name, or for the demo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hedgerow_cli import up_steps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from rich.console import Console

    from launcher.catalog import CatalogEntry
    from launcher.demo import DemoModels
    from launcher.mesh import Mesh
    from launcher.meshfile.without_file import Given
    from launcher.processes import ServiceSpec


def pull_for_demo(models: DemoModels, specs: Sequence[ServiceSpec], console: Console) -> None:
    """Get those of the demo's models that are missing. Raises `MeshError`."""
    from launcher import catalog, demo

    _pull(catalog.missing(demo.PULLED), specs, console)
    models.check()


def _pull(missing: Sequence[CatalogEntry], specs: Sequence[ServiceSpec], console: Console) -> bool:
    """Get these models for these services, with progress, unless a port is in use. Whether there were any. Raises
    `PortInUse`."""
    from hedgerow_cli.failures import fail
    from launcher.catalog import CatalogError, pull
    from launcher.catalog.screen import shown
    from launcher.mesh import refuse_busy_ports

    if not missing:
        return False
    refuse_busy_ports(*specs)
    console.print(f"Pulling {len(missing)} {'model' if len(missing) == 1 else 'models'}, once.")
    try:
        with shown(console) as report:
            pull([each.name for each in missing], report)
    except (CatalogError, OSError) as error:
        fail(str(error))
    return True


async def _nothing(mesh: Mesh, console: Console) -> None:
    import asyncio

    await asyncio.Event().wait()


@dataclass(frozen=True)
class UpPlan:
    """Services to start, the function that writes their files, and the texts to print."""

    specs: Sequence[ServiceSpec]
    next_steps: Callable[[Mesh], str]
    write_files: Callable[[], None] = lambda: None
    opening: str = ""
    warnings: Sequence[str] = ()
    meanwhile: Callable[[Mesh, Console], Awaitable[object]] = _nothing


def of_file(file: Path, state_dir: Path, console: Console, host: str, *, share: bool) -> UpPlan:
    """A mesh file, which is followed while it runs; with `share` in one process where one is enough. `host` is where
    meshes without a file listen here."""
    import asyncio

    from hedgerow_cli.mesh_file import checked

    with checked():
        from launcher.meshfile.catalog import missing_models
        from launcher.meshfile.following import follow
        from launcher.meshfile.planning import plan
        from launcher.meshfile.preflight import refuse_missing

        planned = asyncio.run(plan(file, state_dir, share=share))
        refuse_missing(str(file), planned.file)
        missing = missing_models(planned.file)
    if _pull(missing, planned.specs, console):
        with checked():
            planned = asyncio.run(plan(file, state_dir, share=share))  # what a model says of itself counts

    def meanwhile(mesh: Mesh, console: Console) -> Awaitable[object]:
        return follow(file, state_dir, mesh, planned, lambda line: console.print(line, soft_wrap=True))

    return UpPlan(
        planned.specs,
        lambda _: up_steps.file_steps(file, state_dir, planned.file),
        lambda: planned.write_files(state_dir),
        warnings=[*up_steps.file_warnings(file, planned.file, host), *up_steps.url_warnings(planned.file)],
        meanwhile=meanwhile,
    )


def of_given(given: Given, models: Mapping[str, Any], state_dir: Path, *, share: bool) -> UpPlan:
    """The models that the command line or the environment names; with `share` in one process. Raises ValueError."""
    import asyncio
    import os

    from hedgerow.private import open_private
    from hedgerow_cli.mesh_file import checked
    from launcher.meshfile import without_file
    from launcher.meshfile.fields import Surroundings
    from launcher.meshfile.planning import planned
    from launcher.meshfile.problems import BadMeshFile
    from launcher.meshfile.reading import parse

    named = asyncio.run(without_file.named_by_servers(models, os.environ))
    text, kept = without_file.write(given, named, os.environ), state_dir / "mesh.yaml"
    with checked():
        try:
            read = parse(text, "hedgerow up", Surroundings(Path.cwd(), os.environ))
            made = asyncio.run(planned(read, state_dir, share=share))
        except BadMeshFile as error:  # of a file that the user has not written: its lines say nothing
            raise ValueError("; ".join(f"{each.path}: {each.message}" for each in error.problems)) from None

    def write_files() -> None:
        made.write_files(state_dir)
        with open(kept, "w", encoding="utf-8", opener=open_private) as file:
            file.write(text)

    warnings = up_steps.url_warnings(made.file)
    return UpPlan(made.specs, lambda _: up_steps.given_steps(made.file, kept), write_files, warnings=warnings)


def alone(base_port: int, state_dir: Path, otlp_endpoint: str, console: Console) -> UpPlan:
    """One process of each service, with fixed addresses."""
    from launcher import demo
    from launcher.mesh import HTTP_OFFSET

    models, http_port = demo.public_models(), base_port + HTTP_OFFSET
    specs = demo.demo_mesh(base_port, state_dir, models, http_port=http_port, otlp_endpoint=otlp_endpoint)
    pull_for_demo(models, specs, console)
    return UpPlan(specs, lambda _: up_steps.demo_steps(specs[-1].address, f"127.0.0.1:{http_port}"))


def with_replicas(
    base_port: int, state_dir: Path, replicas: int, otlp_endpoint: str, tls: bool, console: Console
) -> UpPlan:
    """`replicas` of each service, found through the control plane."""
    from hedgerow_cli.failures import needs

    with needs("demo"):
        from launcher.demo import public_models
        from launcher.replicas import ReplicatedMesh, ports_from

    models, ports = public_models(), ports_from(base_port, replicas)
    planned = ReplicatedMesh(ports, state_dir.resolve(), models, replicas, otlp_endpoint, tls)
    specs = planned.specs()
    pull_for_demo(models, specs, console)
    opening = f"Starting {len(specs)} processes; the {2 * replicas} language models among them load at once."
    return UpPlan(specs, lambda mesh: up_steps.replica_steps(mesh, state_dir, tls), planned.write_files, opening)
