"""The services of a mesh file as containers, for compose or for Kubernetes.

They speak plain text to each other: their network must be their own, or one that encrypts automatically.
Keys stay references. A service that needs a model's folder gets it below /models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from hedgerow.identities import SERVICES
from launcher.meshfile.fields import LOOPBACK
from launcher.meshfile.parts import Part, as_text, gateway_finds, parts
from launcher.meshfile.schema import MeshFile

IMAGES = "hedgerow"
VERSION = "0.2.0"  # of the images
HTTP_PORT = 8080
MODELS = "/models"
TENANTS = "/etc/hedgerow/tenants.yaml"
DATA = "/var/lib/hedgerow"  # of the cache
_UNFOLDED = 100_000  # columns: JSON in one line
# In the place of keys, where settings are checked without them.
_STAND_INS = {"REDIS_URL": "redis://redis:6379/0", "ENCRYPTION_KEY": "A" * 43 + "="}


@dataclass(frozen=True)
class Container:
    """A part as a container. `environment` has no keys."""

    part: Part
    image: str
    environment: Mapping[str, str]
    folders: Mapping[str, Path] = field(default_factory=dict)  # on this machine, by where they are inside

    @property
    def key_names(self) -> dict[str, str]:
        """The external name of each credential, by its variable: that of the variable it is taken from, or one after
        the part if it is in a file here."""
        in_file = f"{self.part.name.upper().replace('-', '_')}_KEY"
        return {self.part.prefixed(name): key.variable or in_file for name, key in self.part.keys.items()}

    def with_stand_ins(self) -> dict[str, str]:
        """The environment with something in the place of each key, and with what the image says."""
        keys = {self.part.prefixed(name): _STAND_INS.get(name, "key") for name in self.part.keys}
        return {**self.environment, **keys, self.part.prefixed("ADDRESS"): f"0.0.0.0:{port_of(self.part)}"}


def port_of(part: Part) -> int:
    """The gRPC port of a part's image."""
    return SERVICES[part.service].port


def containers(file: MeshFile, addresses: Callable[[Part], Sequence[str]], images: str = IMAGES) -> list[Container]:
    """All containers of a mesh, the gateway last. `addresses` gives a part's replicas for its callers."""
    found = parts(file)
    return [_container(file, part, found, addresses, images) for part in found]


def elsewhere(found: Sequence[Container]) -> list[str]:
    """Variables with a loopback address, which in a container means the container itself."""
    return [
        f"{container.part.name}: {name} leads to {host}, which is the container itself there"
        for container in found
        for name, text in container.environment.items()
        for host in _hosts(text)
        if host in LOOPBACK
    ]


def _hosts(text: str) -> Iterator[str]:
    for word in text.replace('"', " ").split():
        with suppress(ValueError):  # prose that is no URL
            yield (urlsplit(word).hostname or "") if "://" in word else ""


def _container(
    file: MeshFile, part: Part, found: Sequence[Part], addresses: Callable[[Part], Sequence[str]], images: str
) -> Container:
    folders = {name: folder for name, folder in part.folders.items() if name != "TENANTS_FILE"}
    inside = {name: MODELS if name == "MODELS_DIR" else _place(part, folder, found) for name, folder in folders.items()}
    settings = {**part.settings, **inside, **_own(file, part, found, addresses), "PLAINTEXT": True}
    environment = {part.prefixed(name): as_text(value) for name, value in settings.items()}
    image = "llm-cuda" if part.gpus else part.service
    return Container(
        part,
        f"{images}/{image}:{VERSION}",
        {**environment, **_around(part)},
        {inside[name]: folder for name, folder in folders.items()},
    )


def _place(part: Part, folder: Path, found: Sequence[Part]) -> str:
    """Where a model's folder is inside: by its name, or by its part's where another folder has the same name, because
    Kubernetes has one volume for all."""
    namesakes = {each for other in found for each in other.folders.values() if each.name == folder.name}
    return f"{MODELS}/{folder.name if len(namesakes) == 1 else part.name}"


def _own(
    file: MeshFile, part: Part, found: Sequence[Part], addresses: Callable[[Part], Sequence[str]]
) -> dict[str, object]:
    """The settings that it has as a container."""
    if part.service == "cache":
        database = {} if file.cache.redis_url or file.cache.redis_url_env else {"DATABASE": f"{DATA}/answers.sqlite"}
        return {**database, "COLLECTIONS_DATABASE": f"{DATA}/collections.sqlite"}
    if part.service != "gateway":
        return {}
    settings: dict[str, object] = dict(gateway_finds(found, addresses))
    if file.gateway.http_address:
        settings["HTTP_ADDRESS"] = f"0.0.0.0:{HTTP_PORT}"
    if file.tenants or file.tenants_file:
        settings["TENANTS_FILE"] = TENANTS
    return settings


def _around(part: Part) -> dict[str, str]:
    """Variables for the folders that engines write to: the volume with downloads for a model from the hub, else a
    temporary folder."""
    if part.service not in ("llm", "audio"):
        return {}
    if part.from_hub:
        return {"HOME": "/home/hedgerow", "HF_HOME": "/home/hedgerow/hub", "VLLM_CACHE_ROOT": "/home/hedgerow/vllm"}
    return {"HOME": "/tmp"}


class _Plain(yaml.SafeDumper):
    """Writes what is used in several places in each of them, and texts of several lines as such."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Plain.add_representer(str, _represent)


def dump(content: Mapping[str, Any]) -> str:
    """Readable YAML."""
    return yaml.dump(content, Dumper=_Plain, sort_keys=False, width=_UNFOLDED)
