"""A mesh file as what runs in containers, checked as what runs here is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from launcher.meshfile import compose, helm
from launcher.meshfile.catalog import missing_models
from launcher.meshfile.containers import elsewhere
from launcher.meshfile.preflight import refused
from launcher.meshfile.reading import read


async def render(target: Literal["compose", "helm"], path: Path, images: str) -> tuple[str, list[str]]:
    """(the text, what may not be meant). Raises `BadMeshFile`."""
    found = read(path, keys_needed=False)
    file = found.file or found.whole()
    planned = (compose.compose_containers if target == "compose" else helm.planned)(file, images)
    found.refuse(await refused(found, [(container.part, container.with_stand_ins()) for container in planned]))
    write = compose.render if target == "compose" else helm.render
    absent = [
        f"{each.name} is not on this machine; before the containers start: hedgerow models pull {each.name}"
        for each in missing_models(file)
    ]
    return write(file, os.environ, images), [*elsewhere(planned), *absent]
