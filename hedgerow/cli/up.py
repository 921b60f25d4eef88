"""`hedgerow up`: a mesh on this machine, the demo's or that of a file."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hedgerow.cli import options, running

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rich.console import Console

    from launcher.catalog import Entry
    from launcher.demo import DemoModels
    from launcher.mesh import Mesh
    from launcher.meshfile.schema import MeshFile
    from launcher.processes import ServiceSpec

DEFAULT_TARGET = "127.0.0.1:50050"


def up(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A mesh file. Without it, the demo is started.")
    ] = None,
    base_port: Annotated[
        int,
        typer.Option(
            metavar="PORT",
            min=1,
            max=65_460,
            help="The gateway's port, or Envoy's with --mesh; the others take some of the next 30, or 70.",
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
    state_dir: options.OwnStateDir = None,
    otlp_endpoint: Annotated[str, typer.Option(metavar="URL", help="Where to send traces, http://host:port.")] = "",
) -> None:
    """Start a mesh here, and keep it running: that of FILE, or the demo's.

    FILE names models and providers of your own, and who may call; "hedgerow init" writes one. It is checked as a whole
    before anything starts. Save it while the mesh runs, and the mesh follows: only what has changed is started again,
    one after the other, and a file that cannot be used is refused with its lines.

    The demo is seven processes: gateway, cache, router, vision, audio, and two llm services that run SmolLM2-135M in 8
    and in 16 bits. Its models are pulled when they are missing (260 MB, "hedgerow models list"). A process that ends is
    started again. Ctrl-C stops them all.

    With --mesh, --replicas of each but vision and audio, which are alone, and three more: the control plane tells
    everybody who serves what, from topology.yaml in the state folder, which may be edited meanwhile; Redis holds what
    replicas share; Envoy takes the calls. Two replicas load four language models: 6 GiB of memory, and one to two
    minutes on two cores.

    \b
    Examples:
      hedgerow up
      hedgerow up mesh.yaml
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

    if file:
        _refuse_demo_options(context)
    if not mesh and tls:
        raise typer.BadParameter("needs --mesh", param_hint="--tls")
    console, state_dir = Console(highlight=False), state_dir or running.state_of(file)
    try:
        if file:
            plan = _of_file(file, state_dir, console)
        elif mesh:
            plan = _with_replicas(pulled(console), base_port, state_dir, replicas, otlp_endpoint, tls)
        else:
            plan = _alone(pulled(console), base_port, state_dir, otlp_endpoint)
        asyncio.run(_run(plan, state_dir, console))
    except PortInUse as error:
        if file:
            fail(f"{error}; choose others in {file}: gateway.address, base_port")
        other = base_port + 1000 if base_port < 60_000 else 50_050
        fail(f"{error}; choose others, for example: hedgerow up{' --mesh' if mesh else ''} --base-port {other}")
    except (MeshError, ServiceFailed) as error:
        fail(str(error))


def pulled(console: Console) -> DemoModels:
    """The demo's models; those that are missing are pulled first, with progress. Raises `MeshError`."""
    from launcher import catalog, demo

    if missing := catalog.missing(demo.PULLED):
        console.print(f"Pulling {len(missing)} models, once.")
        _pull(missing, console)
    models = demo.public_models()
    models.check()
    return models


def _pull(missing: Sequence[Entry], console: Console) -> bool:
    """Get these models, with progress. Whether there were any."""
    from hedgerow.cli.failures import fail
    from launcher.catalog import CatalogError, pull
    from launcher.catalog.screen import shown

    if not missing:
        return False
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
class _Plan:
    """What to start, what writes the files that it reads, and what to tell."""

    specs: Sequence[ServiceSpec]
    next_steps: Callable[[Mesh], str]
    write_files: Callable[[], None] = lambda: None
    opening: str = ""
    meanwhile: Callable[[Mesh, Console], Awaitable[object]] = _nothing


def _refuse_demo_options(context: typer.Context) -> None:
    """A file says these itself, or has no use for them."""
    for name in ("base_port", "mesh", "replicas", "tls", "otlp_endpoint"):
        source = context.get_parameter_source(name)
        if source and source.name == "COMMANDLINE":
            raise typer.BadParameter("only for the demo, not with a FILE", param_hint=f"--{name.replace('_', '-')}")


def _of_file(file: Path, state_dir: Path, console: Console) -> _Plan:
    """What a mesh file says, which is followed while it runs."""
    import asyncio

    from hedgerow.cli.mesh_file import checked

    with checked():
        from launcher.meshfile.catalog import missing_models
        from launcher.meshfile.following import follow
        from launcher.meshfile.planning import plan

        planned = asyncio.run(plan(file, state_dir))
        if _pull(missing_models(planned.file), console):
            planned = asyncio.run(plan(file, state_dir))  # what a model says of itself counts

    def meanwhile(mesh: Mesh, console: Console) -> Awaitable[object]:
        return follow(file, state_dir, mesh, planned, lambda line: console.print(line, markup=False, soft_wrap=True))

    return _Plan(
        planned.specs,
        lambda _: file_steps(file, state_dir, planned.file),
        lambda: planned.write_files(state_dir),
        meanwhile=meanwhile,
    )


def _alone(models: DemoModels, base_port: int, state_dir: Path, otlp_endpoint: str) -> _Plan:
    """One of each, who know each other's addresses."""
    from launcher.demo import demo_mesh
    from launcher.mesh import HTTP_OFFSET

    http_port = base_port + HTTP_OFFSET
    specs = demo_mesh(base_port, state_dir, models, http_port=http_port, otlp_endpoint=otlp_endpoint)
    return _Plan(specs, lambda _: _next_steps(specs[-1].address, f"127.0.0.1:{http_port}"))


def _with_replicas(
    models: DemoModels, base_port: int, state_dir: Path, replicas: int, otlp_endpoint: str, tls: bool
) -> _Plan:
    """`replicas` of each, who find each other through the control plane."""
    from hedgerow.cli.failures import needs

    with needs("demo"):
        from launcher.replicas import ReplicatedMesh, ports_from

    ports = ports_from(base_port, replicas)
    planned = ReplicatedMesh(ports, state_dir.resolve(), models, replicas, otlp_endpoint, tls)
    specs = planned.specs()
    opening = f"Starting {len(specs)} processes; the {2 * replicas} language models among them load at once."
    return _Plan(specs, lambda mesh: _mesh_steps(mesh, state_dir, tls), planned.write_files, opening)


async def _run(plan: _Plan, state_dir: Path, console: Console) -> None:
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
            await plan.meanwhile(mesh, console)


def _next_steps(gateway: str, http: str) -> str:
    where = _option("--gateway", gateway, DEFAULT_TARGET)
    return f"""
Try, in another terminal:
  hedgerow ask{where} "What is the capital of Japan?"
  hedgerow ask{where} --budget-ms 300 "Tell me a long story about a fox."

Any client of OpenAI's, with base_url=http://{http}/v1 and whatever key:
  curl -N http://{http}/v1/chat/completions -H "content-type: application/json" \\
    -d '{{"model": "auto", "stream": true, "messages": [{{"role": "user", "content": "Who are you?"}}]}}'

Ctrl-C stops everything.
"""


def file_steps(file: Path, state_dir: Path, said: MeshFile) -> str:
    """What to do with the mesh of a file, once it serves."""
    found = [each.resolve() for each in running.folders()] == [state_dir.resolve()]  # by commands, without an option
    where = _option("--gateway", said.gateway.address, DEFAULT_TARGET if found else "")
    folder = "" if found else _option("--state-dir", str(state_dir), "")
    variable = next((name for tenant in said.tenants.values() for name in tenant.key_env), "")
    key = f"HEDGEROW_API_KEY=${variable} " if variable not in ("", "HEDGEROW_API_KEY") else ""
    models = ", ".join(said.models)
    http = f"\nOpenAI's clients: base_url=http://{said.gateway.http_address}/v1\n" if said.gateway.http_address else ""
    return f"""
Models: {models}. Try, in another terminal:
  {key}hedgerow ask{where} "Who are you?"
  hedgerow status{folder}
{http}
Edit {file}: the mesh follows.

Ctrl-C stops everything.
"""


def _mesh_steps(mesh: Mesh, state_dir: Path, tls: bool) -> str:
    from launcher.mesh import DEFAULT_STATE_DIR
    from launcher.replicas import CERTIFICATES, TOPOLOGY_FILE

    certificates = state_dir / CERTIFICATES
    where = _option("--gateway", mesh.services[-1].spec.address, DEFAULT_TARGET)
    where += _option("--ca-file", str(certificates / "ca.crt"), "") if tls else ""
    folder = _option("--state-dir", str(state_dir), str(DEFAULT_STATE_DIR))
    folder += _option("--tls-dir", str(certificates / "operator"), "") if tls else ""
    pids = {service.spec.name: service.process.pid for service in mesh.services if service.process}
    return f"""
Try, in another terminal. Envoy takes the question, a gateway answers it:
  hedgerow ask{where} "What is the capital of Japan?"

See every endpoint, and which configuration everybody has taken:
  hedgerow mesh status{folder} --watch

Kill llm-quality-1, and ask again; it comes back by itself:
  kill -9 {pids["llm-quality-1"]}
  hedgerow ask{where} --tier quality --cache bypass "What is 7 plus 5?"

Edit {state_dir / TOPOLOGY_FILE}: everybody follows at once.

Ctrl-C stops everything.
"""


def _option(name: str, value: str, default: str) -> str:
    """As a shell takes it."""
    return "" if value == default else f" {name} {shlex.quote(value)}"
