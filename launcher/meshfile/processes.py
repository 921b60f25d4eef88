"""The processes of a mesh file on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import yaml

from hedgerow.engines import PROVIDER_ENGINES
from hedgerow.private import open_private
from launcher.mesh import service_spec
from launcher.meshfile.fields import LAST_PORT
from launcher.meshfile.names import process_names
from launcher.meshfile.parts import Part, as_text, gateway_finds, parts, tenants_of
from launcher.meshfile.preflight import has_embedder
from launcher.meshfile.schema import MeshFile
from launcher.processes import ServiceSpec

TENANTS_FILE = "tenants.yaml"  # of the state folder
EVERYTHING, PROVIDERS = "hedgerow", "providers"  # processes that services share
_LIGHT = ("cache", "router", "gateway")


@dataclass
class Ports:
    """The ports of processes on loopback. A process keeps its port for as long as the mesh runs."""

    first: int
    given: dict[str, int] = field(default_factory=dict)

    def address(self, name: str, more: int = 0) -> str:
        """The address of the service `name`, which has the `more` ports after that one, too."""
        if name not in self.given:
            taken = set(self.given.values())
            starts = range(self.first, LAST_PORT - more + 1)
            port = next((port for port in starts if taken.isdisjoint(range(port, port + more + 1))), None)
            if port is None:
                raise ValueError(f"no port from {self.first} on is left for {name}: set a lower base_port")
            self.given[name] = port
            self.given |= {f"{name}+{number}": port + number for number in range(1, more + 1)}
        return f"127.0.0.1:{self.given[name]}"


def ports_of(file: MeshFile) -> Ports:
    """Ports from the file's `base_port` or the gateway's port on."""
    gateway = int(file.gateway.address.rpartition(":")[2])
    taken = {"gateway": gateway}
    if file.gateway.http_address:
        taken["gateway-http"] = int(file.gateway.http_address.rpartition(":")[2])
    return Ports(file.base_port or gateway + 1, taken)


@dataclass(frozen=True)
class Process:
    """A process and its part of the file."""

    part: Part
    spec: ServiceSpec


def processes(file: MeshFile, ports: Ports, state_dir: Path, environment: Mapping[str, str]) -> list[Process]:
    """The processes to run, the gateway last. Raises ValueError if a key cannot be read."""
    found, local = parts(file), _Local(file, ports, state_dir.absolute(), environment)
    return [Process(part, spec) for part in found for spec in local.specs(part, found)]


class Sharing(Enum):
    """The services that share a process."""

    NONE = "none"
    PROVIDERS = "providers"  # the models that providers have
    ALL = "all"  # these, the cache, the router and the gateway


def most_shared(made: Iterable[Process]) -> Sharing:
    """One process for all services, if all models are at URLs, there is no vision or audio, and one gateway worker."""
    enough = all(_can_share(process.part) for process in made)
    return Sharing.ALL if enough and _has_one_worker(made) else Sharing.PROVIDERS


def specs_of(made: Sequence[Process], sharing: Sharing) -> list[ServiceSpec]:
    """The processes to start, the gateway last. vLLM, vision, audio and engines of other packages have processes of
    their own. All others are processes of services, which change as they run, also where one service is alone in it.
    Where all share a process that runs, several workers of the gateway are that process's children."""
    inside = [each.spec for each in made if _shares(each.part, sharing)]
    alone = [_alone(each) for each in made if not _shares(each.part, sharing)]
    if sharing is Sharing.ALL:
        return [*alone, ServiceSpec.together(EVERYTHING, inside)]
    *others, gateway = alone
    providers = [ServiceSpec.together(PROVIDERS, inside)] if inside else []
    return [*others, *providers, gateway]


def _alone(process: Process) -> ServiceSpec:
    spec = process.spec
    return ServiceSpec.together(spec.name, [spec]) if _can_share(process.part) else spec


def _shares(part: Part, sharing: Sharing) -> bool:
    return _can_share(part) and (sharing is Sharing.ALL or (sharing is Sharing.PROVIDERS and _is_provider(part)))


def _can_share(part: Part) -> bool:
    return part.service in _LIGHT or _is_provider(part)


def _is_provider(part: Part) -> bool:
    return part.service == "llm" and part.settings["ENGINE"] in PROVIDER_ENGINES


def _has_one_worker(made: Iterable[Process]) -> bool:
    return all(str(each.part.settings.get("WORKERS", 1)) == "1" for each in made if each.part.service == "gateway")


@dataclass(frozen=True)
class _Local:
    file: MeshFile
    ports: Ports
    state_dir: Path
    environment: Mapping[str, str]

    def specs(self, part: Part, everybody: Iterable[Part]) -> Iterator[ServiceSpec]:
        settings = {
            **{name: as_text(value) for name, value in part.settings.items()},
            **{name: str(folder) for name, folder in part.folders.items()},
            **{name: key.value(self.environment) for name, key in part.keys.items()},
            **self._own(part, everybody),
        }
        for name in process_names(part.name, part.replicas):
            address = self.file.gateway.address if part.service == "gateway" else self.ports.address(name)
            yield service_spec(name, part.service, address, settings)

    def _own(self, part: Part, everybody: Iterable[Part]) -> dict[str, str]:
        """The settings that it has because it runs here."""
        if part.service == "cache":
            cache = self.file.cache
            database = cache.database or ("" if cache.redis_url or cache.redis_url_env else self.state_dir / "cache.db")
            return {
                **({} if "EMBEDDER" in part.settings or self._embeds() else {"EMBEDDER": "none"}),
                "DATABASE": str(database),
                "COLLECTIONS_DATABASE": str(cache.collections or self.state_dir / "collections.db"),
            }
        if part.service != "gateway":
            return {}
        found = {name: as_text(value) for name, value in gateway_finds(list(everybody), self._addresses).items()}
        if self.file.gateway.http_address:
            found["HTTP_ADDRESS"] = self.file.gateway.http_address
        if not {"METRICS_ADDRESS", part.prefixed("METRICS_ADDRESS")} & {*part.settings, *self.environment}:
            workers = int(part.settings.get("WORKERS", 1))
            found["METRICS_ADDRESS"] = self.ports.address("gateway-metrics", workers if workers > 1 else 0)
        if self.file.tenants:
            found["TENANTS_FILE"] = str(self.state_dir / TENANTS_FILE)
        return found

    def _embeds(self) -> bool:
        """Whether the cache loads an embedding model: not where the file says that nothing is compared by meaning."""
        return has_embedder() and (self.file.cache.semantic is not False or self.file.cache.collections is not None)

    def _addresses(self, part: Part) -> list[str]:
        return [self.ports.address(name) for name in process_names(part.name, part.replicas)]


def write_tenants(file: MeshFile, state_dir: Path, environment: Mapping[str, str]) -> None:
    """Write the tenants' file, which the gateway follows. It has hashes of keys only."""
    if not file.tenants:
        return
    unfinished = state_dir / f"{TENANTS_FILE}.new"
    with open(unfinished, "w", encoding="utf-8", opener=open_private) as out:
        yaml.safe_dump(tenants_of(file, environment), out)
    unfinished.replace(state_dir / TENANTS_FILE)
