"""Turns a mesh file into a checked plan of processes on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.mesh import MeshError
from launcher.meshfile.parts import tenants_of
from launcher.meshfile.preflight import refused
from launcher.meshfile.processes import (
    Ports,
    Process,
    Sharing,
    most_shared,
    ports_of,
    processes,
    specs_of,
    write_tenants,
)
from launcher.meshfile.reading import MeshFileReading, read
from launcher.meshfile.schema import MeshFile
from launcher.processes import ServiceSpec


@dataclass(frozen=True)
class MeshPlan:
    """A valid mesh file, its text and its processes, the gateway last."""

    text: str
    file: MeshFile
    specs: Sequence[ServiceSpec]
    ports: Ports
    sharing: Sharing = Sharing.NONE

    def write_files(self, state_dir: Path) -> None:
        """Write the files for the services."""
        write_tenants(self.file, state_dir, os.environ)


async def plan(path: Path, state_dir: Path, *, share: bool = False) -> MeshPlan:
    """Read the file and ask the services' own code about it. With `share`, services share a process where one is
    enough. Raises `BadMeshFile`, and `MeshError` where a key is gone that was there a moment ago."""
    return await planned(read(path), state_dir, share=share)


async def planned(found: MeshFileReading, state_dir: Path, *, share: bool = False) -> MeshPlan:
    """The plan of a parsed file."""
    return await _planned(found, state_dir, None, most_shared if share else lambda _: Sharing.NONE)


async def replanned(path: Path, state_dir: Path, current: MeshPlan) -> MeshPlan:
    """The plan of the changed file; services keep their ports and their shared process."""
    return await _planned(read(path), state_dir, current.ports, lambda _: current.sharing)


async def _planned(
    found: MeshFileReading, state_dir: Path, ports: Ports | None, shared: Callable[[Sequence[Process]], Sharing]
) -> MeshPlan:
    file = found.file or found.whole()
    ports = ports or ports_of(file)
    try:
        made = processes(file, ports, state_dir, os.environ)
        asked = [(process.part, _asked(process, file)) for process in made]
    except (ValueError, KeyError) as error:
        raise MeshError(f"{found.name}: {error}") from None
    found.refuse(await refused(found, asked))
    sharing = shared(made)
    return MeshPlan(found.text, file, specs_of(made, sharing), ports, sharing)


def _asked(process: Process, file: MeshFile) -> Mapping[str, str]:
    """The settings that a service is asked about. The gateway's include the tenants, whose file is not written yet."""
    environment = process.spec.environment
    if process.part.service != "gateway" or not file.tenants:
        return environment
    return {**environment, process.part.prefixed("TENANTS"): json.dumps(tenants_of(file, os.environ))}
