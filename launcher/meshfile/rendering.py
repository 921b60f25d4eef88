"""Renders a mesh file for containers, after the same checks as for this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from launcher.meshfile import compose, helm
from launcher.meshfile.catalog import missing_models
from launcher.meshfile.containers import elsewhere
from launcher.meshfile.preflight import refused
from launcher.meshfile.problems import Problem
from launcher.meshfile.reading import read

_CALLERS = (
    "in a cluster every pod may reach the gateway, and no caller of this file needs a key. Write "
    '"tenants: {me: {key_env: HEDGEROW_API_KEY}}" and set that variable; or, to admit every caller, '
    '"allow_anonymous: true" below "gateway:"'
)


async def render(target: Literal["compose", "helm"], path: Path, images: str) -> tuple[str, list[str]]:
    """(the text, warnings). Raises `BadMeshFile`."""
    found = read(path, keys_needed=False)
    file = found.file or found.whole()
    planned = (compose.compose_containers if target == "compose" else helm.planned)(file, images)
    problems = await refused(found, [(container.part, container.with_stand_ins()) for container in planned])
    found.refuse([*_in_a_cluster(problems)])
    write = compose.render if target == "compose" else helm.render
    absent = [
        f"{each.name} is not on this machine; before the containers start: hedgerow models pull {each.name}"
        for each in missing_models(file)
    ]
    unpublished = compose.unpublished(file) if target == "compose" else []
    return write(file, os.environ, images), [*unpublished, *elsewhere(planned), *absent]


def _in_a_cluster(problems: Sequence[Problem]) -> Iterator[Problem]:
    """The same. A file for one machine needs no key of a caller: what it needs here is said in its own keys."""
    for problem in problems:
        wants_keys = problem.message.startswith("allow_anonymous of gateway: a key")
        yield replace(problem, message=_CALLERS) if wants_keys else problem
