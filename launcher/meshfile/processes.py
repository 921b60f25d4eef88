"""The processes of a mesh file on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from hedgerow.private import open_private
from launcher.mesh import service_spec
from launcher.meshfile.installed import has_embedder
from launcher.meshfile.names import process_names
from launcher.meshfile.parts import Part, as_text, gateway_finds, parts, tenants_of
from launcher.meshfile.schema import MeshFile
from launcher.processes import ServiceSpec

TENANTS_FILE = "tenants.yaml"  # of the state folder


@dataclass
class Ports:
    """Who has which port on loopback. A process keeps its own for as long as the mesh runs, whatever comes and goes."""

    first: int
    given: dict[str, int] = field(default_factory=dict)

    def address(self, name: str) -> str:
        """Where `name` serves."""
        if name not in self.given:
            self.given[name] = next(port for port in range(self.first, 65_536) if port not in self.given.values())
        return f"127.0.0.1:{self.given[name]}"


def ports_of(file: MeshFile) -> Ports:
    """Those from the file's `base_port` on, or from the gateway's own."""
    gateway = int(file.gateway.address.rpartition(":")[2])
    taken = {"gateway": gateway}
    if file.gateway.http_address:
        taken["gateway-http"] = int(file.gateway.http_address.rpartition(":")[2])
    return Ports(file.base_port or gateway + 1, taken)


@dataclass(frozen=True)
class Process:
    """One process, and the part of the file that it serves."""

    part: Part
    spec: ServiceSpec


def processes(file: MeshFile, ports: Ports, state_dir: Path, environment: Mapping[str, str]) -> list[Process]:
    """What runs, the gateway last. Raises ValueError where a key cannot be read any more."""
    found, local = parts(file), _Local(file, ports, state_dir.absolute(), environment)
    return [Process(part, spec) for part in found for spec in local.specs(part, found)]


@dataclass(frozen=True)
class _Local:
    file: MeshFile
    ports: Ports
    state_dir: Path
    environment: Mapping[str, str]

    def specs(self, part: Part, everybody: Iterable[Part]) -> Iterator[ServiceSpec]:
        told = {
            **{name: as_text(value) for name, value in part.settings.items()},
            **{name: str(folder) for name, folder in part.folders.items()},
            **{name: key.value(self.environment) for name, key in part.keys.items()},
            **self._own(part, everybody),
        }
        for name in process_names(part.name, part.replicas):
            address = self.file.gateway.address if part.service == "gateway" else self.ports.address(name)
            yield service_spec(name, part.service, address, told, {})

    def _own(self, part: Part, everybody: Iterable[Part]) -> dict[str, str]:
        """What it is told because it runs here."""
        if part.service == "cache":
            return {
                **({} if has_embedder() or "EMBEDDER" in part.settings else {"EMBEDDER": "none"}),
                "DATABASE": str(self.file.cache.database or self.state_dir / "cache.db"),
                "COLLECTIONS_DATABASE": str(self.file.cache.collections or self.state_dir / "collections.db"),
            }
        if part.service != "gateway":
            return {}
        found = {name: as_text(value) for name, value in gateway_finds(list(everybody), self._addresses).items()}
        if self.file.gateway.http_address:
            found["HTTP_ADDRESS"] = self.file.gateway.http_address
        if self.file.tenants:
            found["TENANTS_FILE"] = str(self.state_dir / TENANTS_FILE)
        return found

    def _addresses(self, part: Part) -> list[str]:
        return [self.ports.address(name) for name in process_names(part.name, part.replicas)]


def write_tenants(file: MeshFile, state_dir: Path, environment: Mapping[str, str]) -> None:
    """The tenants for the gateway, which follows their file. It holds no key, only what shows that one is right."""
    if not file.tenants:
        return
    unfinished = state_dir / f"{TENANTS_FILE}.new"
    with open(unfinished, "w", opener=open_private) as out:
        yaml.safe_dump(tenants_of(file, environment), out)
    unfinished.replace(state_dir / TENANTS_FILE)
