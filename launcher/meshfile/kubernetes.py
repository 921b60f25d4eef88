"""A mesh file as Kubernetes manifests.

The gateway finds the others by their names, without a control plane; models are StatefulSets, because the replicas of
one have names of their own then, between which it hedges and balances.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import yaml

from launcher.meshfile.containers import DATA, HTTP_PORT, IMAGES, MODELS, TENANTS, Container, containers, dump, port_of
from launcher.meshfile.parts import Key, Part, tenants_of
from launcher.meshfile.schema import MeshFile

KEYS = "hedgerow-keys"  # the Secret
_PART_OF = {"app.kubernetes.io/part-of": "hedgerow"}
_USER = 10001  # of the images
Manifest = dict[str, Any]

_HEAD = """\
# Written by `hedgerow render k8s`. Apply it with: kubectl apply -n NAMESPACE -f THIS
# Its services speak plain text to each other: give it a network that encrypts by itself, or see deploy/k8s for mutual
# TLS. Callers reach the gateway inside of the cluster, at gateway:50050.
"""


def render(file: MeshFile, environment: Mapping[str, str], images: str = IMAGES) -> str:
    """The manifests' text. `environment` is asked for callers' keys, of which it gets the SHA-256."""
    found = pods(file, images)
    manifests = [*_around(file, environment, found)]
    for container in found:
        manifests += _of(file, container)
    return _HEAD + _needed(found) + "---\n".join(map(dump, manifests))


def pods(file: MeshFile, images: str = IMAGES) -> list[Container]:
    """Its containers, which find each other by their Services' names."""

    def addresses(part: Part) -> list[str]:
        if part.service != "llm":
            return [f"{part.name}:{port_of(part)}"]
        return [f"{part.name}-{number}.{part.name}:{port_of(part)}" for number in range(part.replicas)]

    return containers(file, addresses, images)


def _needed(found: list[Container]) -> str:
    """What must be there before it is applied."""
    lines = []
    if names := sorted({_entry(each.part, key) for each in found for key in each.keys.values()}):
        literals = " ".join(f'--from-literal={name}="${name}"' for name in names)
        lines.append(f"# First: kubectl create secret generic -n NAMESPACE {KEYS} {literals}")
    if folders := sorted({inside for each in found for inside in each.folders}):
        lines.append(f"# Put the models into the volume `models`, so that these are there: {', '.join(folders)}")
    return "".join(f"{line}\n" for line in lines)


def _around(file: MeshFile, environment: Mapping[str, str], found: list[Container]) -> Iterator[Manifest]:
    """What no service has alone."""
    if file.tenants or file.tenants_file:
        text = file.tenants_file.read_text() if file.tenants_file else yaml.safe_dump(tenants_of(file, environment))
        yield {**_object("v1", "Secret", "tenants"), "stringData": {"tenants.yaml": text}}
    if any(container.folders for container in found):
        yield _claim("models", "ReadWriteMany", "20Gi")
    if any(container.part.from_hub for container in found):
        yield _claim("hub", "ReadWriteMany", "100Gi")
    if file.cache.enabled:
        yield _claim("answers", "ReadWriteOnce", "2Gi")
    yield from _policies(found)


def _policies(found: list[Container]) -> Iterator[Manifest]:
    """Who may open a connection to whom: the gateway to all, all to a look-up of names, and each to where it must."""
    ours = {"matchLabels": _PART_OF}
    behind = {"matchLabels": _PART_OF, "matchExpressions": [_name("NotIn", "gateway")]}
    yield _policy("nobody-by-default", ours, policyTypes=["Ingress", "Egress"])
    names = {"to": [{"namespaceSelector": {}}], "ports": [{"port": 53, "protocol": p} for p in ("UDP", "TCP")]}
    yield _policy("names", ours, policyTypes=["Egress"], egress=[names])
    gateway = {"matchLabels": {"app.kubernetes.io/name": "gateway"}}
    to_ours = [{"to": [{"podSelector": ours}]}]
    yield _policy("gateway", gateway, policyTypes=["Ingress", "Egress"], ingress=[{}], egress=to_ours)
    yield _policy("behind-the-gateway", behind, policyTypes=["Ingress"], ingress=[{"from": [{"podSelector": gateway}]}])
    for container in found:
        if ports := sorted(set(_ports_outside(container))):
            who = {"matchLabels": {"app.kubernetes.io/name": container.part.name}}
            out = [{"ports": [{"port": port, "protocol": "TCP"} for port in ports]}]
            yield _policy(f"{container.part.name}-outside", who, policyTypes=["Egress"], egress=out)


def _ports_outside(container: Container) -> Iterator[int]:
    """Where it must be let out to: its provider, the hub, Redis, traces."""
    if container.part.from_hub:
        yield 443
    if "REDIS_URL" in container.part.keys:
        yield 6379
    for url in re.findall(r"\w+://[^\s\"]+", " ".join(container.environment.values())):
        parts = urlsplit(url)
        yield parts.port or {"http": 80, "https": 443}.get(parts.scheme, 6379)


def _of(file: MeshFile, container: Container) -> Iterator[Manifest]:
    """All of one service."""
    part, http = container.part, bool(file.gateway.http_address) and container.part.service == "gateway"
    labels = {"app.kubernetes.io/name": part.name}
    ports: list[Manifest] = [{"name": "grpc", "port": port_of(part), "targetPort": "grpc", "appProtocol": "grpc"}]
    ports += [{"name": "http", "port": HTTP_PORT, "targetPort": "http"}] if http else []
    alone = part.service == "gateway"
    yield {**_object("v1", "ServiceAccount", part.name), "automountServiceAccountToken": False}
    service = {"selector": labels, "ports": ports}
    yield {**_object("v1", "Service", part.name), "spec": service if alone else {"clusterIP": "None", **service}}
    if part.replicas > 1:
        spec = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
        yield {**_object("policy/v1", "PodDisruptionBudget", part.name), "spec": spec}
    pod = {"metadata": {"labels": {**labels, **_PART_OF}}, "spec": _pod(file, container, http)}
    spec = {"replicas": part.replicas, "selector": {"matchLabels": labels}, "template": pod}
    if part.service == "llm":
        yield {**_object("apps/v1", "StatefulSet", part.name), "spec": {"serviceName": part.name, **spec}}
    else:
        strategy = {"type": "Recreate"} if part.service == "cache" else {"rollingUpdate": {"maxUnavailable": 0}}
        yield {**_object("apps/v1", "Deployment", part.name), "spec": {"strategy": strategy, **spec}}


def _pod(file: MeshFile, container: Container, http: bool) -> Manifest:
    part = container.part
    volumes, mounts = _volumes(file, container)
    probe = {
        "exec": {"command": ["python3", "-m", "services.runtime.probe", f"127.0.0.1:{port_of(part)}"]},
        "timeoutSeconds": 5,
    }
    memory, gpus = f"{round(part.memory_gib * 1024)}Mi", {"nvidia.com/gpu": part.gpus} if part.gpus else {}
    ports: list[Manifest] = [{"name": "grpc", "containerPort": port_of(part)}]
    ports += [{"name": "http", "containerPort": HTTP_PORT}] if http else []
    spec: Manifest = {
        "serviceAccountName": part.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # variables of other Services would be there by accident, and settings are strict
        "terminationGracePeriodSeconds": 15,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "service",
                "image": container.image,
                "ports": ports,
                "env": [*_env(container)],
                "startupProbe": {**probe, "periodSeconds": 3, "failureThreshold": 400},
                "readinessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 2},
                "livenessProbe": {**probe, "periodSeconds": 30, "failureThreshold": 4},
                "resources": {
                    "requests": {"cpu": "250m", "memory": memory},
                    "limits": {"memory": memory, **gpus},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }
    if part.gpus:
        spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    return spec


def _env(container: Container) -> Iterator[Manifest]:
    for name, text in container.environment.items():
        yield {"name": name, "value": text.replace("$(", "$$(")}
    for name, key in container.keys.items():
        reference: Manifest = {"name": KEYS, "key": _entry(container.part, key)}
        yield {"name": name, "valueFrom": {"secretKeyRef": reference}}
    if container.part.from_hub:
        reference = {"name": KEYS, "key": "HF_TOKEN", "optional": True}
        yield {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": reference}}


def _volumes(file: MeshFile, container: Container) -> tuple[list[Manifest], list[Manifest]]:
    """(volumes, where they are mounted)."""
    part = container.part
    found: list[tuple[Manifest, str, bool]] = [({"name": "tmp", "emptyDir": {"sizeLimit": "4Gi"}}, "/tmp", False)]
    if container.folders:
        claim = {"claimName": "models", "readOnly": True}
        found.append(({"name": "models", "persistentVolumeClaim": claim}, MODELS, True))
    if part.from_hub:
        found.append(({"name": "hub", "persistentVolumeClaim": {"claimName": "hub"}}, "/home/hedgerow", False))
    if part.service == "llm" and (container.folders or part.from_hub):
        found.append(({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "512Mi"}}, "/dev/shm", False))
    if part.service == "cache":
        found.append(({"name": "answers", "persistentVolumeClaim": {"claimName": "answers"}}, DATA, False))
    if part.service == "gateway" and (file.tenants or file.tenants_file):
        secret = {"secretName": "tenants", "defaultMode": 0o440}
        found.append(({"name": "tenants", "secret": secret}, TENANTS.rpartition("/")[0], True))
    mounts = [
        {"name": volume["name"], "mountPath": at, **({"readOnly": True} if read_only else {})}
        for volume, at, read_only in found
    ]
    return [volume for volume, _, _ in found], mounts


def _entry(part: Part, key: Key) -> str:
    """The key's name in the Secret."""
    return key.variable or f"{part.name.upper().replace('-', '_')}_KEY"


def _object(version: str, kind: str, name: str) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": dict(_PART_OF)}}


def _claim(name: str, mode: str, size: str) -> Manifest:
    spec = {"accessModes": [mode], "resources": {"requests": {"storage": size}}}
    return {**_object("v1", "PersistentVolumeClaim", name), "spec": spec}


def _policy(name: str, selector: Manifest, **spec: Any) -> Manifest:
    return {**_object("networking.k8s.io/v1", "NetworkPolicy", name), "spec": {"podSelector": selector, **spec}}


def _name(operator: str, *names: str) -> Manifest:
    return {"key": "app.kubernetes.io/name", "operator": operator, "values": list(names)}
