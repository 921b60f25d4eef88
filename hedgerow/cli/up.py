"""`hedgerow up`: the demo mesh on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hedgerow.cli import options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from launcher.mesh import Mesh
    from launcher.processes import ServiceSpec

DEFAULT_TARGET = "127.0.0.1:50050"


def up(
    base_port: Annotated[
        int,
        typer.Option(
            metavar="PORT",
            min=1,
            max=65_480,
            help="The gateway's port, or Envoy's with --mesh; the others take the next ones: 6, or up to 55.",
        ),
    ] = 50050,
    mesh: Annotated[
        bool, typer.Option("--mesh", help="Replicas, found through a control plane; Envoy in front, Redis behind.")
    ] = False,
    replicas: Annotated[
        int, typer.Option(metavar="N", min=1, max=8, help="With --mesh: processes of each service.")
    ] = 2,
    tls: Annotated[
        bool, typer.Option("--tls", help="With --mesh: certificates for all, made anew; nobody talks without.")
    ] = False,
    state_dir: options.StateDir = Path(".hedgerow"),
    otlp_endpoint: Annotated[str, typer.Option(metavar="URL", help="Where to send traces, http://host:port.")] = "",
) -> None:
    """Start the demo mesh here, and keep it running.

    Seven processes: gateway, cache, router, two llm services with the demo models, vision and audio. One that ends is
    started again. Ctrl-C stops them all.

    With --mesh, --replicas of each but vision and audio, which are alone, and three more: the control plane tells
    everybody who serves what, from topology.yaml in the state folder, which may be edited meanwhile; Redis holds what
    replicas share; Envoy takes the calls. Two replicas load four language models: 10 GiB of memory, and one to two
    minutes on two cores.

    \b
    Examples:
      hedgerow up
      hedgerow up --base-port 6000 --otlp-endpoint http://127.0.0.1:4317
      hedgerow up --mesh
      hedgerow up --mesh --replicas 1 --tls
    """
    import asyncio

    from rich.console import Console

    from hedgerow.cli.failures import fail, needs

    with needs("demo"):
        from launcher.mesh import MeshError, PortInUse
        from launcher.processes import ServiceFailed

    if not mesh and tls:
        raise typer.BadParameter("needs --mesh", param_hint="--tls")
    try:
        if mesh:
            plan = _with_replicas(base_port, state_dir, replicas, otlp_endpoint, tls)
        else:
            plan = _alone(base_port, state_dir, otlp_endpoint)
        asyncio.run(_run(plan, state_dir, Console(highlight=False)))
    except PortInUse as error:
        other = base_port + 1000 if base_port < 60_000 else 50_050
        fail(f"{error}; choose others, for example: hedgerow up{' --mesh' if mesh else ''} --base-port {other}")
    except (MeshError, ServiceFailed) as error:
        fail(str(error))


@dataclass(frozen=True)
class _Plan:
    """What to start, what writes the files that it reads, and what to tell."""

    specs: Sequence[ServiceSpec]
    next_steps: Callable[[Mesh], str]
    write_files: Callable[[], None] = lambda: None
    opening: str = ""


def _alone(base_port: int, state_dir: Path, otlp_endpoint: str) -> _Plan:
    """One of each, who know each other's addresses."""
    from launcher.mesh import default_models_dir, demo_mesh

    specs = demo_mesh(base_port, state_dir, default_models_dir(), otlp_endpoint=otlp_endpoint)
    return _Plan(specs, lambda _: _next_steps(specs[-1].address))


def _with_replicas(base_port: int, state_dir: Path, replicas: int, otlp_endpoint: str, tls: bool) -> _Plan:
    """`replicas` of each, who find each other through the control plane."""
    from hedgerow.cli.failures import needs

    with needs("demo"):
        from launcher.mesh import default_models_dir
        from launcher.replicas import ReplicatedMesh, ports_from

    ports = ports_from(base_port, replicas)
    planned = ReplicatedMesh(ports, state_dir.resolve(), default_models_dir(), replicas, otlp_endpoint, tls)
    specs = planned.specs()
    opening = f"Starting {len(specs)} processes; the {2 * replicas} language models among them load at once."
    return _Plan(specs, lambda mesh: _mesh_steps(mesh, state_dir, tls), planned.write_files, opening)


async def _run(plan: _Plan, state_dir: Path, console: Console) -> None:
    import asyncio
    import os

    from hedgerow.cli.signals import cancelled_by_signals
    from hedgerow.private import UMASK
    from launcher.progress import Progress, started

    os.umask(UMASK)  # what it writes into the state folder, be that where it may
    progress = Progress(console, [spec.name for spec in plan.specs])
    if plan.opening:
        console.print(plan.opening)
    with cancelled_by_signals():
        async with started(plan.specs, state_dir, progress, plan.write_files) as mesh:
            console.print(progress.services(mesh))
            console.print(plan.next_steps(mesh), markup=False, soft_wrap=True)
            await asyncio.Event().wait()


def _next_steps(gateway: str) -> str:
    where = _option("--gateway", gateway, DEFAULT_TARGET)
    return f"""
Try, in another terminal:
  hedgerow ask{where} "What is the capital of France?"
  hedgerow ask{where} --budget-ms 300 "Tell me a long story about a fox."

Ctrl-C stops everything.
"""


def _mesh_steps(mesh: Mesh, state_dir: Path, tls: bool) -> str:
    from launcher.mesh import DEFAULT_STATE_DIR
    from launcher.replicas import CERTIFICATES, TOPOLOGY_FILE

    certificates = state_dir / CERTIFICATES
    where = _option("--gateway", mesh.services[-1].spec.address, DEFAULT_TARGET)
    where += f" --ca-file {certificates / 'ca.crt'}" if tls else ""
    folder = _option("--state-dir", str(state_dir), str(DEFAULT_STATE_DIR))
    folder += f" --tls-dir {certificates / 'operator'}" if tls else ""
    pids = {service.spec.name: service.process.pid for service in mesh.services if service.process}
    return f"""
Try, in another terminal. Envoy takes the question, a gateway answers it:
  hedgerow ask{where} "What is the capital of France?"

See every endpoint, and which configuration everybody has taken:
  hedgerow mesh status{folder} --watch

Kill llm-quality-1, and ask again; it comes back by itself:
  kill -9 {pids["llm-quality-1"]}
  hedgerow ask{where} --tier quality --no-cache "What is 7 plus 5?"

Edit {state_dir / TOPOLOGY_FILE}: everybody follows at once.

Ctrl-C stops everything.
"""


def _option(name: str, value: str, default: str) -> str:
    return "" if value == default else f" {name} {value}"
