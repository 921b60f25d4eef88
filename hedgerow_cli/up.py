"""`hedgerow up`: a mesh on this machine, from a file, from options, or the demo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hedgerow_cli import mesh_file, options, running, up_plans
from hedgerow_cli.option_groups import with_options

if TYPE_CHECKING:
    from rich.console import Console

    from launcher.mesh import Mesh
    from launcher.meshfile.without_file import Given

_DEMO_ALONE = "it belongs to the demo's mesh"
# The options that are refused beside a mesh file, and the way to the same there.
_IN_FILE = {
    "base_port": "set its key gateway.address, or base_port",
    "mesh": f"{_DEMO_ALONE}; set `replicas` of a model in the file for several processes of it",
    "replicas": f"{_DEMO_ALONE}; set `replicas` of a model in the file",
    "tls": f"{_DEMO_ALONE}; docs/kubernetes.md has mutual TLS of a mesh file",
    "otlp_endpoint": "set its key tracing",
    "demo": "leave out the one or the other",
    "model": "add the model to its key models",
    "key_env": "set its key models.NAME.key_env",
    "host": "set its key gateway.address",
}
_GIVEN = "models"  # the state folder's name of a mesh without a file


@dataclass(frozen=True)
class DemoOptions:
    """The group of options for the demo: which of its two meshes."""

    demo: Annotated[bool, typer.Option("--demo", help="Start the demo, also if the environment names models.")] = False
    mesh: Annotated[
        bool, typer.Option("--mesh", help="Replicas, found through a control plane; Envoy in front, Redis behind.")
    ] = False
    replicas: Annotated[
        int, typer.Option(metavar="N", min=1, max=8, help="With --mesh: processes of each service.")
    ] = 2
    tls: Annotated[
        bool,
        typer.Option("--tls", help="With --mesh: new certificates for all services, which refuse callers without one."),
    ] = False


@with_options(demo=DemoOptions)
def up(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="A mesh file. Without it: mesh.yaml, where no option names something else."
        ),
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
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=URL",
            envvar="HEDGEROW_MODELS",
            help="A model to serve: NAME=URL of an OpenAI-compatible server (NAME=URL#ITS_NAME where it has another "
            "name there), or PROVIDER:MODEL; with ,serves=embeddings (or rerank, moderations) where it does not "
            "chat. May be repeated; one NAME with several URLs has replicas.",
        ),
    ] = None,
    key_env: Annotated[
        str, typer.Option(metavar="NAME", help="The environment variable with the key of the URLs of --model.")
    ] = "",
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            envvar="HEDGEROW_UP_HOST",
            help="Where to listen, with --model or a key; beyond loopback callers need HEDGEROW_API_KEY.",
        ),
    ] = "127.0.0.1",
    *,
    demo: DemoOptions,
    processes: Annotated[
        bool, typer.Option("--processes", help="One process for each service, also where one is enough.")
    ] = False,
    state_dir: options.OwnStateDir = None,
    otlp_endpoint: Annotated[str, typer.Option(metavar="URL", help="Where to send traces, http://host:port.")] = "",
) -> None:
    """Start a mesh here, and keep it running: from FILE, from --model, from keys in the environment, or the demo.

    FILE has your models, providers and tenants; "hedgerow init" writes one. It is checked completely before anything
    starts. The running mesh follows changes of the file: only changed services are restarted, one after the other, and
    an invalid file is refused with its line numbers.

    Without a file, --model names the models. Without either, the environment does: OPENAI_API_KEY, ANTHROPIC_API_KEY,
    or AZURE_OPENAI_API_KEY with AZURE_OPENAI_ENDPOINT and AZURE_OPENAI_DEPLOYMENT. HEDGEROW_API_KEY, if set, is the key
    that callers need. This needs only "hedgerow[proxy]".

    If all models are at URLs, and the mesh has no vision and no audio service, gateway, cache, router and models share
    one process. --processes starts one for each.

    The demo, which starts if nothing else is named, has seven processes: gateway, cache, router, vision, audio, and two
    llm services that run SmolLM2-135M in 8 and in 16 bits. Missing models are pulled (260 MB, "hedgerow models list").
    A process that ends is restarted. Ctrl-C stops all of them.

    With --mesh, there are --replicas processes of each service but vision and audio, and three more: the control plane
    configures clients from topology.yaml in the state folder, which may be edited meanwhile; Redis holds the shared
    state of replicas; Envoy receives the calls. Two replicas load four language models: 6 GiB of memory, and one to two
    minutes on two cores.

    \b
    Examples:
      OPENAI_API_KEY=... hedgerow up
      hedgerow up --model qwen=http://127.0.0.1:8000/v1 --model anthropic:claude-haiku-4-5
      hedgerow up --model openai:gpt-5-mini --model openai:text-embedding-3-small,serves=embeddings
      hedgerow up mesh.yaml
      hedgerow up --demo --base-port 6000 --otlp-endpoint http://127.0.0.1:4317
      hedgerow up --mesh
      hedgerow up --mesh --replicas 1 --tls
    """
    import asyncio

    from hedgerow_cli.failures import fail, needs
    from hedgerow_cli.terminal import PlainConsole

    file = file or _file_here(context, model)
    wanted = demo if demo.demo or demo.mesh or _said(context, "replicas") else None
    with needs("demo" if wanted else "proxy"):
        from launcher.mesh import MeshError, PortInUse
        from launcher.meshfile.without_file import Given
        from launcher.processes import ServiceFailed

    _refuse_pairs(context, file, wanted)
    if not demo.mesh and demo.tls:
        raise typer.BadParameter("needs --mesh", param_hint="--tls")
    console = PlainConsole()
    given = Given(model or (), key_env, host, base_port, otlp_endpoint)
    try:
        plan, folder = _chosen(file, given, wanted, state_dir, console, share=not processes)
        asyncio.run(_run(plan, folder, console))
    except PortInUse as error:
        same = " --mesh" if demo.mesh else " --demo" if demo.demo else ""
        fail(f"{error}; choose others{_where_to_choose_ports(file, base_port, same)}")
    except (MeshError, ServiceFailed) as error:
        fail(str(error))


def _where_to_choose_ports(file: Path | None, base_port: int, same: str) -> str:
    """In the mesh file, or by an option beside the `same` ones."""
    if file:
        return f" in {file}: gateway.address, base_port"
    return f", for example: hedgerow up{same} --base-port {base_port + 1000 if base_port < 60_000 else 50_050}"


def _chosen(
    file: Path | None, given: Given, demo: DemoOptions | None, state_dir: Path | None, console: Console, *, share: bool
) -> tuple[up_plans.UpPlan, Path]:
    """The plan to start, and its state folder. The demo where nothing else is named and its engine is installed."""
    import os
    from importlib.util import find_spec

    from hedgerow_cli.failures import fail
    from launcher.meshfile.without_file import NOTHING, sections

    if file:
        folder = state_dir or running.state_of(file)
        return up_plans.of_file(file, folder, console, given.host, share=share), folder
    try:
        if demo is None and (models := sections(given, os.environ)):
            folder = state_dir or running.state_of(Path(_GIVEN))
            return up_plans.of_given(given, models, folder, share=share), folder
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if given.otlp_endpoint:
        _refuse_no_url(given.otlp_endpoint)
    if not find_spec("vllm"):
        fail("vllm is not installed; install it with: pip install 'hedgerow[demo]'" if demo else NOTHING)
    folder, ports, traces = state_dir or running.state_of(None), given.base_port, given.otlp_endpoint
    if demo and demo.mesh:
        return up_plans.with_replicas(ports, folder, demo.replicas, traces, demo.tls, console), folder
    return up_plans.alone(ports, folder, traces, console), folder


def _refuse_no_url(endpoint: str) -> None:
    from launcher.meshfile.fields import http_url

    try:
        http_url(endpoint)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--otlp-endpoint") from None


def _file_here(context: typer.Context, model: list[str] | None) -> Path | None:
    """The mesh file of this folder. None without such a file, and where an option rules it out."""
    if model or any(_said(context, name) for name in _IN_FILE):
        return None
    return mesh_file.here()


def _said(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _refuse_pairs(context: typer.Context, file: Path | None, demo: DemoOptions | None) -> None:
    """A file says these itself, or has no use for them; and the demo has its own models."""
    own = ("model", "key_env", "host")
    for name in _IN_FILE if file else own if demo else ():
        if _said(context, name):
            refused = f"not with a FILE: {_IN_FILE[name]}" if file else "not with the demo"
            raise typer.BadParameter(refused, param_hint=f"--{name.replace('_', '-')}")


async def _run(plan: up_plans.UpPlan, state_dir: Path, console: Console) -> None:
    import os

    from hedgerow.private import UMASK
    from hedgerow_cli.signals import cancelled_by_signals
    from launcher.progress import Progress, started

    os.umask(UMASK)  # what it writes into the state folder, be that where it may
    progress = Progress(console, [spec.name for spec in plan.specs])
    if plan.opening:
        console.print(plan.opening)
    with cancelled_by_signals():
        async with started(plan.specs, state_dir, progress, plan.write_files) as mesh:
            console.print(progress.services(mesh))
            for warning in [*plan.warnings, *progress.warnings(mesh)]:
                console.print(f"WARNING {warning}", style="yellow", soft_wrap=True)
            console.print(plan.next_steps(mesh), soft_wrap=True)
            await _follow(plan, mesh, console)


async def _follow(plan: up_plans.UpPlan, mesh: Mesh, console: Console) -> None:
    """Do what the plan does while the mesh runs, and show models whose providers fail. Until cancelled."""
    import asyncio
    from contextlib import suppress

    from launcher.outages import follow

    def show(line: str) -> None:
        with suppress(OSError):  # a terminal that is gone
            console.print(line, style="yellow", soft_wrap=True)

    outages = asyncio.create_task(follow(mesh, show))
    try:
        await plan.meanwhile(mesh, console)
    finally:
        outages.cancel()
