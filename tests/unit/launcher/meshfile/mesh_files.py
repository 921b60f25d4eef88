"""A mesh file with everything in it, and the processes of mesh files."""

from __future__ import annotations

from pathlib import Path

from launcher.meshfile.fields import Surroundings
from launcher.meshfile.processes import ports_of, processes
from launcher.meshfile.reading import parse
from launcher.meshfile.schema import MeshFile
from launcher.processes import ServiceSpec

KEY = "sk-proj-Ab12Cd34Ef56"
CACHE_KEY = "Ab12" * 10 + "Ab0="
ENVIRONMENT = {
    "PROVIDER_KEY": f"{KEY}\n",
    "CALLER_KEY": "a-callers-key",
    "REDIS": "redis://:pw@127.0.0.1:6379/0",
    "CACHE_KEY": CACHE_KEY,
}


FULL = """\
models:
  remote:
    url: https://api.example/v1
    model: big-one
    key_env: PROVIDER_KEY
    tier: quality
    prices: {input: 0.5, output: 1.5}
    context_tokens: 128000
    max_tokens: 1000
    expected_ttft_ms: 300
    options: {http_version: "2"}
  local:
    folder: ./model
    replicas: 2
    options: {enforce_eager: true}
    settings: {grace_ms: 9}
tenants:
  acme: {key_env: [CALLER_KEY], requests_per_s: 5}
gateway: {address: "127.0.0.1:6000", workers: 2, settings: {hedge: {mode: fixed}, default_budget_ms: 9000}}
cache: {redis_url_env: REDIS}
vision: {models: ., default: shapes}
audio: ./model
tracing: http://127.0.0.1:4317
"""


def file_of(text: str, folder: Path) -> MeshFile:
    return parse(text, "mesh.yaml", Surroundings(folder, ENVIRONMENT)).whole()


def specs_of(text: str, folder: Path) -> dict[str, ServiceSpec]:
    file = file_of(text, folder)
    found = processes(file, ports_of(file), folder / "state", ENVIRONMENT)
    return {process.spec.name: process.spec for process in found}
