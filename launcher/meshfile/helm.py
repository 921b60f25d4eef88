"""A mesh file as values of the Helm chart `deploy/helm/hedgerow`.

The values say what the file says and nothing else. The chart decides where services find each other, how they prove
their identity and how they are probed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import ceil
from typing import Any
from urllib.parse import urlsplit

from launcher.grace import grace_s
from launcher.meshfile.containers import IMAGES, Container, containers, dump
from launcher.meshfile.parts import Part, parts, tenants_of
from launcher.meshfile.schema import MeshFile

KEYS = "hedgerow-keys"  # the Secret
Values = dict[str, Any]

_HEAD = """\
# Written by `hedgerow render helm`. Install it with: helm install mesh deploy/helm/hedgerow -n NAMESPACE -f THIS
# Other values go into a file of their own, after this one: docs/kubernetes.md.
"""
# Settings that the chart makes from values of its own, or that have no meaning in a pod.
_CHARTS = {"MODELS", "MODEL_NAME", "OTLP_ENDPOINT", "TRACE_RATIO", "PLAINTEXT", "WORKERS", "REDIS_URL"} | {
    *("GRACE_MS", "LAME_DUCK_MS", "METRICS_ADDRESS")
}
_LAME_DUCK_S, _LONGEST_GRACE_S = 10, 600  # of the chart
_PORTS = {"http": 80, "https": 443}


def render(file: MeshFile, environment: Mapping[str, str], images: str = IMAGES) -> str:
    """The values' text. `environment` is asked for callers' keys, of which it gets the SHA-256."""
    found = planned(file, images)
    return _HEAD + _needed(found) + dump(values(file, environment, found, images))


def planned(file: MeshFile, images: str = IMAGES) -> list[Container]:
    """The containers of a mesh file, which find each other through the control plane."""
    # Of the Deployments that serve one model: the topology's service is named after it.
    first: dict[tuple[str, str], str] = {}
    for part in parts(file):
        first.setdefault(_served(part), part.name)

    def addresses(part: Part) -> list[str]:
        return [f"xds:///{part.name}"] if first[_served(part)] == part.name else []

    return containers(file, addresses, images)


def values(file: MeshFile, environment: Mapping[str, str], found: Sequence[Container], images: str = IMAGES) -> Values:
    """The values of the chart."""
    by_name = {container.part.name: container for container in found}
    rows = {row["name"]: row for row in by_name["router"].part.settings["MODELS"]}
    chart_values: Values = {"images": {"prefix": images}} if images != IMAGES else {}
    chart_values["redis"] = _redis(file)
    chart_values["tenants"] = _tenants(file, environment)
    if file.tracing:
        chart_values["tracing"] = {"endpoint": file.tracing.otlp_endpoint, "ratio": file.tracing.ratio}
    if shutdown := _shutdown([container.part for container in found]):
        chart_values["shutdown"] = shutdown
    chart_values["models"] = [_model(container, rows) for container in found if container.part.service == "llm"]
    if any(container.part.from_hub for container in found):
        chart_values["storage"] = {"hub": {"tokenSecret": {"name": KEYS, "key": "HF_TOKEN"}}}
    # Without Redis each gateway counts quotas alone, and each router learns alone.
    replicas = 1 if chart_values["redis"]["mode"] == "none" else 2
    chart_values["gateway"] = {
        "replicas": max(replicas, file.gateway.workers),  # in the place of workers
        "http": {"enabled": bool(file.gateway.http_address)},
        **_service(by_name["gateway"], file.gateway.workers),
    }
    chart_values["router"] = {"replicas": replicas, **_service(by_name["router"])}
    chart_values["cache"] = _cache(file, by_name.get("cache"))
    for name in ("vision", "audio"):
        container = by_name.get(name)
        chart_values[name] = {"enabled": True, **_service(container)} if container else {"enabled": False}
    if file.services:
        chart_values["services"] = {name: _service(by_name[name]) for name in file.services}
    if container := by_name.get("audio"):
        chart_values["audio"]["source"] = _source(container.part)
    return chart_values


def _served(part: Part) -> tuple[str, str]:
    """The service and the model, for those that serve one: a model may have a service's name."""
    return part.service, str(part.settings["MODEL_NAME"]) if part.service == "llm" else part.name


def _needed(found: Sequence[Container]) -> str:
    """The Secrets and models that must be there before it is installed."""
    lines = []
    if names := sorted({name for each in found for name in each.key_names.values()}):
        literals = " ".join(f'--from-literal={name}="${name}"' for name in names)
        lines.append(f"# First: kubectl -n NAMESPACE create secret generic {KEYS} {literals}")
    if folders := sorted({inside for each in found for inside in each.folders}):
        lines.append(f"# Put the models into the claim `models`, so that these are there: {', '.join(folders)}")
    return "".join(f"{line}\n" for line in lines)


def _redis(file: MeshFile) -> Values:
    if name := file.cache.redis_url_env:
        return {"mode": "external", "urlSecret": {"name": KEYS, "key": name}}
    if url := file.cache.redis_url:
        return {"mode": "external", "url": url, "port": urlsplit(url).port or 6379}
    return {"mode": "none"}


def _tenants(file: MeshFile, environment: Mapping[str, str]) -> Values:
    """The tenants of the file, with digests of their keys. A `tenants_file` becomes a Secret outside of the chart."""
    if file.tenants:
        return {"inline": tenants_of(file, environment)}
    return {"secretName": "tenants" if file.tenants_file else ""}


def _shutdown(found: Sequence[Part]) -> Values:
    """The longest times of any service, where the file names some: the chart has one for all. Where it names none in
    which new calls are still taken, the chart's own comes before the grace."""
    lame_ducks, graces = (
        [grace_s(part.settings[name]) for part in found if name in part.settings]
        for name in ("LAME_DUCK_MS", "GRACE_MS")
    )
    said: Values = {"lameDuckSeconds": ceil(max(lame_ducks))} if lame_ducks else {}
    if graces:
        longest = ceil(max(graces)) + (0 if lame_ducks else _LAME_DUCK_S)
        said["graceSeconds"] = min(max(longest, 1), _LONGEST_GRACE_S)
    return said


def _cache(file: MeshFile, container: Container | None) -> Values:
    """Without Redis one replica keeps answers in a volume of its own."""
    if container is None:
        return {"enabled": False}
    name = file.cache.encryption_key_env
    chart_values: Values = {"encryptionKey": {"name": KEYS if name else "", "key": name or "key"}}
    if not (file.cache.redis_url_env or file.cache.redis_url):
        chart_values |= {"replicas": 1, "persistence": {"enabled": True}}
    return {**chart_values, **_service(container)}


def _model(container: Container, rows: Mapping[str, Mapping[str, Any]]) -> Values:
    part, name = container.part, container.part.settings["MODEL_NAME"]
    chart_values: Values = {"name": name, "service": part.name.removeprefix("llm-"), "source": _source(part)}
    chart_values["router"] = {key: value for key, value in rows[name].items() if key != "name"}
    chart_values["replicas"] = part.replicas
    if part.gpus:
        chart_values["gpus"] = part.gpus
    return {**chart_values, **_service(container)}


def _source(part: Part) -> str:
    return "hub" if part.from_hub else "volume" if part.folders else "provider"


def _ports(settings: Mapping[str, Any]) -> Iterator[int]:
    """The ports of URLs in the settings: of a provider, of a server of tools."""
    for text in re.findall(r"https?://[^\s\"]+", json.dumps(settings)):
        with suppress(ValueError):  # prose that is no URL: http://host:PORT
            url = urlsplit(text)
            yield url.port or _PORTS[url.scheme]


def _service(container: Container, workers: int = 1) -> Values:
    """The settings of any service, and the memory of one of its processes."""
    part = container.part
    inside = {name: container.environment[part.prefixed(name)] for name in part.folders if name != "TENANTS_FILE"}
    settings = {name: value for name, value in {**part.settings, **inside}.items() if name not in _CHARTS}
    secrets = {
        name: {"name": KEYS, "key": container.key_names[part.prefixed(name)]}
        for name in part.keys
        if name not in ("REDIS_URL", "ENCRYPTION_KEY")
    }
    memory = f"{round(part.memory_gib / workers * 1024)}Mi"
    chart_values: Values = {"resources": {"requests": {"cpu": "250m", "memory": memory}, "limits": {"memory": memory}}}
    ports = [{"port": port, "protocol": "TCP"} for port in sorted(set(_ports(settings)))]
    more = {"settings": settings, "secrets": secrets, "egress": [{"ports": ports}] if ports else []}
    return {**chart_values, **{name: value for name, value in more.items() if value}}
