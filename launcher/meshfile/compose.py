"""A mesh file as a docker-compose file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from math import ceil
from typing import Any

import yaml

from launcher.grace import grace_s
from launcher.meshfile.containers import HTTP_PORT, IMAGES, TENANTS, Container, containers, dump, port_of
from launcher.meshfile.fields import is_loopback
from launcher.meshfile.names import process_names
from launcher.meshfile.parts import Part, tenants_of
from launcher.meshfile.schema import MeshFile

_HEAD = """\
# Written by `hedgerow render compose`. Start it with: docker compose -f THIS up
# It needs Docker Engine 25, and the images: docs/operations.md says how they are built.
# Keys are taken from the environment where it is started{needed}.
"""
_EVERY_SERVICE: Mapping[str, Any] = {
    "restart": "unless-stopped",
    "init": True,
    "read_only": True,
    "tmpfs": ["/tmp:exec"],
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
}
# How long a service may take to start, as its image says it. Meanwhile it is asked each second, but a language model
# every five: asking takes a part of the core it starts on.
_START_S = {"cache": 60, "vision": 60, "audio": 120, "llm": 300}
_OTHERS_START_S, _START_WITH_GPU_S = 30, 900
_SLACK_S = 5  # beyond a service's own grace, before it is killed


def render(file: MeshFile, environment: Mapping[str, str], images: str = IMAGES) -> str:
    """The compose file's text. It has the SHA-256 of callers' keys, which are read from `environment`."""
    found = compose_containers(file, images)
    services = {
        name: _service(file, container)
        for container in found
        for name in process_names(container.part.name, container.part.replicas)
    }
    services["gateway"]["depends_on"] = {
        name: {"condition": "service_healthy"} for name in services if name != "gateway"
    }
    whole: dict[str, Any] = {"name": "hedgerow", "services": services}
    if file.tenants:
        whole["configs"] = {"tenants": {"content": _literal(yaml.safe_dump(tenants_of(file, environment)))}}
    elif file.tenants_file:
        whole["configs"] = {"tenants": {"file": _literal(str(file.tenants_file))}}
    if volumes := [name for name in ("answers", "hub") if any(_mounts(each, name) for each in services.values())]:
        whole["volumes"] = {name: {} for name in volumes}
    names = sorted({name for each in found for name in each.key_names.values()})
    needed = f": {', '.join(names)}" if names else ""
    return _HEAD.format(needed=needed) + dump(whole)


def compose_containers(file: MeshFile, images: str = IMAGES) -> list[Container]:
    """The containers; they find each other by the services' names."""

    def addresses(part: Part) -> list[str]:
        return [f"{name}:{port_of(part)}" for name in process_names(part.name, part.replicas)]

    found = containers(file, addresses, images)
    published = filter(None, (file.gateway.address, file.gateway.http_address))
    if file.tenants or file.tenants_file or not all(map(is_loopback, published)):
        return found
    return [_opened(container) if container.part.service == "gateway" else container for container in found]


def _opened(gateway: Container) -> Container:
    """Without tenants the published port is on loopback, so that only this machine may call."""
    opened = {**gateway.environment, gateway.part.prefixed("ALLOW_ANONYMOUS"): "true"}
    return Container(gateway.part, gateway.image, opened, gateway.folders)


def _service(file: MeshFile, container: Container) -> dict[str, Any]:
    part = container.part
    environment = {name: _literal(text) for name, text in container.environment.items()}
    environment |= {name: f"${{{variable}:?}}" for name, variable in container.key_names.items()}
    mounts: list[Any] = [
        {"type": "bind", "source": _literal(str(folder)), "target": inside, "read_only": True}
        for inside, folder in container.folders.items()
    ]
    starts_s = _START_WITH_GPU_S if part.gpus else _START_S.get(part.service, _OTHERS_START_S)
    service = {
        **_EVERY_SERVICE,
        "image": container.image,
        "healthcheck": {"start_period": f"{starts_s}s", "start_interval": "5s" if part.service == "llm" else "1s"},
        "stop_grace_period": f"{ceil(grace_s(part.settings.get('GRACE_MS'))) + _SLACK_S}s",
        "mem_limit": f"{round(part.memory_gib * 1024)}m",
    }
    if (part.service == "llm" and not part.leaves) or part.from_hub:
        service["shm_size"] = "512m"
    if part.service == "cache":
        mounts.append("answers:/var/lib/hedgerow")
    if part.from_hub:
        mounts.append("hub:/home/hedgerow")
        environment["HF_TOKEN"] = "${HF_TOKEN:-}"
    if part.gpus:
        devices = [{"driver": "nvidia", "count": part.gpus, "capabilities": ["gpu"]}]
        service["deploy"] = {"resources": {"reservations": {"devices": devices}}}
    if part.service == "gateway":
        published = {file.gateway.address: port_of(part), file.gateway.http_address: HTTP_PORT}
        service["ports"] = [f"{_by_number(address)}:{port}" for address, port in published.items() if address]
        if file.tenants or file.tenants_file:
            service["configs"] = [{"source": "tenants", "target": TENANTS}]
    return {**service, "environment": environment, **({"volumes": mounts} if mounts else {})}


def unpublished(file: MeshFile) -> list[str]:
    """The gateway's addresses at which Docker publishes no port."""
    named = filter(_named, filter(None, (file.gateway.address, file.gateway.http_address)))
    return [f"gateway: Docker publishes ports at IP addresses alone, got {each}" for each in named]


def _named(address: str) -> bool:
    try:
        ip_address(_by_number(address).rpartition(":")[0].strip("[]"))
    except ValueError:
        return True
    return False


def _by_number(address: str) -> str:
    """The address to publish a port at, where Docker takes no name."""
    return re.sub("^localhost:", "127.0.0.1:", address)


def _literal(text: str) -> str:
    """A text for a compose file in which compose expands no variables."""
    return text.replace("$", "$$")


def _mounts(service: Mapping[str, Any], volume: str) -> bool:
    return any(isinstance(each, str) and each.startswith(f"{volume}:") for each in service.get("volumes", ()))
