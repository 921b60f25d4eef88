"""The Helm chart as a cluster would get it: what Helm makes of `deploy/helm` with each of its values files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

HELM = Path(__file__).parents[2] / "deploy/helm"
CHART, VALUES = HELM / "hedgerow", HELM / "values"
NAMESPACE = "hedgerow"
# By name, the values files that are put over each other, as the first lines of the last one say.
VARIANTS = {
    "default": (),
    "whole-mesh": ("whole-mesh",),
    "gpu": ("gpu",),
    "two-regions": ("whole-mesh", "two-regions"),
    "provider": ("provider",),
    "given-secrets": ("given-secrets",),
}
needs_helm = pytest.mark.skipif(
    find_spec("helm_python") is None, reason="no Helm: the package helm-python-sdk has it as a library"
)
_WARNING = 2  # of Helm's severities
Manifest = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """Helm's output for the chart with some values."""

    findings: tuple[Mapping[str, Any], ...]
    error: str
    manifests: tuple[Manifest, ...]

    @property
    def warnings(self) -> list[str]:
        """The errors of `helm lint`."""
        return [each["error"] for each in self.findings if each["severity"] >= _WARNING]

    def kind(self, *kinds: str) -> dict[str, Manifest]:
        """The manifests of these kinds by name."""
        return {each["metadata"]["name"]: each for each in self.manifests if each["kind"] in kinds}

    @property
    def workloads(self) -> dict[str, Manifest]:
        """The resources that run pods."""
        return self.kind("Deployment", "StatefulSet")

    @property
    def ours(self) -> dict[str, Manifest]:
        """The workloads of our own services."""
        return {name: each for name, each in self.workloads.items() if identity(each) not in ("edge", "redis")}


def ask(values: Iterable[Mapping[str, Any]], namespace: str = NAMESPACE, chart: Path = CHART) -> list[Answer]:
    """Helm's output for a chart with each of these values."""
    command = [sys.executable, str(Path(__file__).with_name("run_helm.py")), str(chart), namespace]
    done = subprocess.run(command, input=json.dumps(list(values)), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [_answer(**each) for each in json.loads(done.stdout)]


def _answer(findings: list[Mapping[str, Any]], texts: Mapping[str, str], error: str) -> Answer:
    pages = [text for name, text in texts.items() if not name.endswith((".txt", ".tpl"))]
    manifests = (manifest for text in pages for manifest in yaml.safe_load_all(text))
    return Answer(tuple(findings), error, tuple(manifest for manifest in manifests if manifest))


def values_of(variant: str) -> Manifest:
    """The values files of a variant; later ones override earlier ones."""
    values: Manifest = {}
    for name in VARIANTS[variant]:
        values = over(values, yaml.safe_load((VALUES / f"{name}.yaml").read_text()))
    return values


def over(below: Manifest, above: Manifest) -> Manifest:
    """As Helm puts values over each other: name by name."""
    both = {name: over(below[name], above[name]) for name in below.keys() & above.keys() if _groups(below, above, name)}
    return {**below, **above, **both}


def _groups(below: Manifest, above: Manifest, name: str) -> bool:
    return isinstance(below[name], dict) and isinstance(above[name], dict)


@cache
def _all() -> dict[str, Answer]:
    return dict(zip(VARIANTS, ask(map(values_of, VARIANTS)), strict=True))


def rendered(variant: str) -> Answer:
    """The chart with the variant's values."""
    answer = _all()[variant]
    assert not answer.error, answer.error
    return answer


def labels(workload: Manifest) -> Mapping[str, str]:
    """The labels of a workload's pods."""
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


def ports(workload: Manifest) -> dict[str, int]:
    """The ports of its container by name."""
    return {each["name"]: each["containerPort"] for each in container(workload)["ports"]}


def identity(workload: Manifest) -> str:
    """The identity of its pods."""
    return labels(workload)["hedgerow/identity"]


_ENCRYPTION_KEY = "c2VjcmV0" * 5 + "c2U="


def environment(workload: Manifest, secret: str = "redis://redis:6379/0") -> dict[str, str]:
    """The variables of a workload's container, with `$(NAME)` replaced by earlier ones as in Kubernetes. `secret` is
    the content of Secrets, except for an encryption key."""
    variables: dict[str, str] = {}
    for variable in container(workload).get("env", ()):
        source = variable.get("valueFrom", {})
        held = _ENCRYPTION_KEY if variable["name"].endswith("_ENCRYPTION_KEY") else secret
        text = variable.get("value", "pod-1" if "fieldRef" in source else held)
        for name, value in variables.items():
            text = text.replace(f"$({name})", value)
        variables[variable["name"]] = text
    return variables


def selects(selector: Mapping[str, Any], given: Mapping[str, str]) -> bool:
    """Whether a label selector (`matchLabels`, `matchExpressions`) selects what has these labels."""
    if any(given.get(name) != value for name, value in selector.get("matchLabels", {}).items()):
        return False
    return all(_holds(each, given) for each in selector.get("matchExpressions", ()))


def _holds(expression: Mapping[str, Any], given: Mapping[str, str]) -> bool:
    inside = given.get(expression["key"]) in expression["values"]
    return inside is (expression["operator"] == "In")
