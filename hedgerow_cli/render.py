"""`hedgerow render`: a mesh file as configuration of containers."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hedgerow_cli import mesh_file


class Target(StrEnum):
    """The format of the output."""

    COMPOSE = "compose"
    HELM = "helm"


def render(
    target: Annotated[Target, typer.Argument(help="docker compose, or the Helm chart.")],
    file: mesh_file.MeshFile = mesh_file.DEFAULT,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write it. Without it, on stdout.")
    ] = None,
    images: Annotated[str, typer.Option(metavar="PREFIX", help="What the images' names begin with.")] = "hedgerow",
) -> None:
    """Write a mesh file as a docker-compose file or as values of the Helm chart.

    Providers' keys stay references: to variables of the environment in which compose is started, or to entries of the
    Secret hedgerow-keys. Callers' keys are written as SHA-256, so they must be known here. With compose, services use
    plain text between each other, in a network of their own.

    \b
    Examples:
      hedgerow render compose mesh.yaml -o docker-compose.yml
      hedgerow render helm mesh.yaml -o values.yaml
      helm install mesh deploy/helm/hedgerow -n hedgerow -f values.yaml
    """
    import asyncio

    from hedgerow_cli.failures import fail, notify

    with mesh_file.checked():
        from launcher.meshfile.rendering import render as rendered

        text, warnings = asyncio.run(rendered(target.value, file, images))
    for warning in warnings:
        notify(warning)
    if output is None:
        print(text, end="")
        return
    try:
        output.write_text(text, "utf-8")
    except OSError as error:
        fail(f"{output} cannot be written: {error.strerror}")
