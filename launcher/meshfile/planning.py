"""From a file on the disk to what is to run on this machine, checked as a whole."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.mesh import MeshError
from launcher.meshfile.parts import tenants_of
from launcher.meshfile.preflight import refused
from launcher.meshfile.processes import Ports, Process, ports_of, processes, write_tenants
from launcher.meshfile.reading import Read, read
from launcher.meshfile.schema import MeshFile
from launcher.processes import ServiceSpec


@dataclass(frozen=True)
class Plan:
    """A file that can be used, its text, and the processes that it means, the gateway last."""

    text: str
    file: MeshFile
    specs: Sequence[ServiceSpec]
    ports: Ports

    def write_files(self, state_dir: Path) -> None:
        """What the services read beside their environment."""
        write_tenants(self.file, state_dir, os.environ)


async def plan(path: Path, state_dir: Path, ports: Ports | None = None) -> Plan:
    """Read the file and ask the services' own code about it. With `ports`, processes that had one keep it. Raises
    `BadMeshFile`, and `MeshError` where a key is gone that was there a moment ago."""
    return await planned(read(path), state_dir, ports)


async def planned(found: Read, state_dir: Path, ports: Ports | None = None) -> Plan:
    """The same of a file that was read."""
    file = found.file or found.whole()
    ports = ports or ports_of(file)
    try:
        made = processes(file, ports, state_dir, os.environ)
    except (ValueError, KeyError) as error:
        raise MeshError(f"{found.name}: {error}") from None
    found.refuse(await refused(found, [(process.part, _asked(process, file)) for process in made]))
    return Plan(found.text, file, [process.spec for process in made], ports)


def _asked(process: Process, file: MeshFile) -> Mapping[str, str]:
    """The settings that a service is asked about. The gateway's include the tenants, whose file is not written yet."""
    told = process.spec.environment
    if process.part.service != "gateway" or not file.tenants:
        return told
    return {**told, process.part.prefixed("TENANTS"): json.dumps(tenants_of(file, os.environ))}
