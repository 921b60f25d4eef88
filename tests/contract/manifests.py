"""The Kubernetes manifests as a cluster would get them: what `kubectl kustomize` makes of deploy/k8s."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2] / "deploy/k8s"
VARIANTS = ("base", "overlays/gpu", "overlays/two-regions")
KUBECTL = shutil.which("kubectl")
Manifest = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """One way to apply them."""

    name: str
    manifests: tuple[Manifest, ...]

    def kind(self, *kinds: str) -> dict[str, Manifest]:
        """The manifests of these kinds by name."""
        return {each["metadata"]["name"]: each for each in self.manifests if each["kind"] in kinds}

    @property
    def workloads(self) -> dict[str, Manifest]:
        """What runs pods."""
        return self.kind("Deployment", "StatefulSet")

    @property
    def ours(self) -> dict[str, Manifest]:
        """What runs our own services."""
        return {name: each for name, each in self.workloads.items() if "hedgerow/identity" in labels(each)}


@cache
def rendered(name: str) -> Variant:
    """The manifests of `deploy/k8s/<name>`. There must be a kubectl."""
    assert KUBECTL
    done = subprocess.run([KUBECTL, "kustomize", str(ROOT / name)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return Variant(name, tuple(yaml.safe_load_all(done.stdout)))


def kustomizations() -> dict[Path, Manifest]:
    """Every kustomization by its folder."""
    return {path.parent: yaml.safe_load(path.read_text()) for path in sorted(ROOT.rglob("kustomization.yaml"))}


def named_by(kustomization: Manifest) -> Iterator[str]:
    """The files and folders that it puts together."""
    yield from kustomization.get("resources", ())
    yield from kustomization.get("components", ())
    yield from (patch["path"] for patch in kustomization.get("patches", ()) if "path" in patch)
    for generator in kustomization.get("configMapGenerator", ()):
        yield from generator["files"]


def as_written() -> Iterator[tuple[Path, Manifest]]:
    """(file, manifest) of every resource, before any patch."""
    for folder, kustomization in kustomizations().items():
        for name in kustomization.get("resources", ()):
            if (folder / name).is_file():
                for manifest in yaml.safe_load_all((folder / name).read_text()):
                    yield folder / name, manifest


def labels(workload: Manifest) -> Mapping[str, str]:
    """Of its pods."""
    found: Mapping[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return found


def pod(workload: Manifest) -> Manifest:
    """The spec of its pods."""
    found: Manifest = workload["spec"]["template"]["spec"]
    return found


def container(workload: Manifest) -> Manifest:
    """The one container of its pods."""
    (found,) = pod(workload)["containers"]
    return dict(found)


def identity(workload: Manifest) -> str:
    """Who its pods are to the others."""
    given = labels(workload)
    return given.get("hedgerow/identity") or given["app.kubernetes.io/name"]


_ENCRYPTION_KEY = "c2VjcmV0" * 5 + "c2U="


def environment(workload: Manifest, secret: str = "redis://redis:6379/0") -> dict[str, str]:
    """What its container is told, `$(NAME)` replaced as Kubernetes does it: by what stands before. `secret` is what
    secrets hold, but for a key that encrypts."""
    told: dict[str, str] = {}
    for variable in container(workload).get("env", ()):
        source = variable.get("valueFrom", {})
        held = _ENCRYPTION_KEY if variable["name"].endswith("_ENCRYPTION_KEY") else secret
        text = variable.get("value", "pod-1" if "fieldRef" in source else held)
        for name, value in told.items():
            text = text.replace(f"$({name})", value)
        told[variable["name"]] = text
    return told


def selects(selector: Mapping[str, Any], given: Mapping[str, str]) -> bool:
    """Whether a label selector (`matchLabels`, `matchExpressions`) selects what has these labels."""
    if any(given.get(name) != value for name, value in selector.get("matchLabels", {}).items()):
        return False
    return all(_holds(each, given) for each in selector.get("matchExpressions", ()))


def _holds(expression: Mapping[str, Any], given: Mapping[str, str]) -> bool:
    if expression["operator"] == "Exists":
        return expression["key"] in given
    assert expression["operator"] == "In", "this test knows no other"
    return given.get(expression["key"]) in expression["values"]
