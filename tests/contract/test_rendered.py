"""What `hedgerow render` writes is valid, and settings that the services take."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from docs.settings import settings_classes
from launcher.meshfile import compose, kubernetes
from launcher.meshfile.fields import Surroundings
from launcher.meshfile.reading import parse
from launcher.meshfile.schema import MeshFile, Tenant
from services.gateway.settings.tenants import TenantSettings
from services.runtime.process.config import load
from tests.contract.manifests import container, environment, labels, pod, selects

REPOSITORY = Path(__file__).parents[2]
KEYS = {
    "PROVIDER_KEY": "sk-Ab12Cd34",
    "REDIS": "redis://:pw-Ab12@redis:6379/0",
    "CACHE_KEY": "Ab12" * 10 + "Ab0=",
    "CALLER_KEY": "caller-Ab12",
}
OLDEST = "1.30"  # of Kubernetes
CLASSES = {cls.__module__.split(".")[1]: cls for cls in settings_classes()}
SMALLEST = "models: {gpt: 'https://api.example/v1'}\n"
TENANTS = "tenants:\n  acme: {key_env: CALLER_KEY, concurrency: 4}\n"
FULL = """\
models:
  remote:
    url: https://api.example:8443/v1
    key_env: PROVIDER_KEY
    tier: quality
    prices: {input: 0.5, output: 1.5}
    replicas: 2
    options: {http_version: "2"}
  hub/model: {hub: Qwen/Qwen3-8B, gpus: 1, memory_gib: 24, context_tokens: 8192}
  local: {folder: tests/models/demo-llm, tier: fast, options: {enforce_eager: true}}
cache: {redis_url_env: REDIS, encryption_key_env: CACHE_KEY}
vision: {models: tests/models, default: demo-vision}
audio: tests/models/demo-whisper
tracing: http://jaeger:4317
gateway: {http: 8080, workers: 2, settings: {hedge: {mode: fixed}}}
"""


def file_of(text: str) -> MeshFile:
    return parse(text, "mesh.yaml", Surroundings(REPOSITORY, KEYS)).whole()


def as_compose(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(compose.render(file_of(text), KEYS))
    return found


def as_manifests(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(kubernetes.render(file_of(text), KEYS)))


def workloads(text: str) -> dict[str, dict[str, Any]]:
    return {
        each["metadata"]["name"]: each for each in as_manifests(text) if each["kind"] in ("Deployment", "StatefulSet")
    }


def folder_of(image: str) -> str:
    return image.rpartition("/")[2].partition(":")[0].removesuffix("-cuda")


def takes(service: str, told: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service's own settings class takes them all."""
    for name in [name for name in os.environ if name.startswith("HEDGEROW_")]:
        monkeypatch.delenv(name)
    (folder / "tenants.yaml").write_text("{}")
    for name, value in told.items():
        monkeypatch.setenv(name, value.replace("/etc/hedgerow", str(folder)))
    (port,) = re.findall(r"^EXPOSE (\d+)$", (REPOSITORY / f"deploy/docker/{service}.Dockerfile").read_text(), re.M)
    monkeypatch.setenv(f"HEDGEROW_{service.upper()}_ADDRESS", f"0.0.0.0:{port}")
    load(CLASSES[service], [], prog=service)


each_text = pytest.mark.parametrize("text", [SMALLEST + TENANTS, FULL + TENANTS], ids=["smallest", "full"])


@each_text
def test_compose_is_valid(text: str, tmp_path: Path) -> None:
    file = tmp_path / "docker-compose.yml"
    file.write_text(compose.render(file_of(text), KEYS))
    command = [Path(sys.executable).with_name("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@each_text
def test_the_environment_in_compose_is_settings_that_the_service_takes(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for service in as_compose(text)["services"].values():
        told = {
            name: re.sub(r"\$\{(\w+):\?\}", lambda found: KEYS[found[1]], value).replace("$$", "$")
            for name, value in service["environment"].items()
            if name.startswith("HEDGEROW_")
        }
        takes(folder_of(service["image"]), told, tmp_path, monkeypatch)


@each_text
def test_addresses_in_compose_are_services(text: str) -> None:
    services = as_compose(text)["services"]
    told = services["gateway"]["environment"]
    models = json.loads(told["HEDGEROW_GATEWAY_LLM_ADDRESSES"])
    named = [told[f"HEDGEROW_GATEWAY_{name}_ADDRESS"] for name in ("CACHE", "ROUTER", "VISION", "AUDIO")]
    for address in [*filter(None, named), *(each for addresses in models.values() for each in addresses)]:
        assert address.partition(":")[0] in services
    assert services["gateway"]["depends_on"].keys() == services.keys() - {"gateway"}
    published = [port for service in services.values() for port in service.get("ports", ())]
    http = "127.0.0.1:8080" if "http: 8080" in text else "127.0.0.1:50080"
    assert published == ["127.0.0.1:50050:50050", f"{http}:8080"]


@each_text
def test_services_in_compose_are_asked_often_while_they_start_for_as_long_as_their_images_say(text: str) -> None:
    for service in as_compose(text)["services"].values():
        image = service["image"].rpartition("/")[2].partition(":")[0]
        file = (REPOSITORY / f"deploy/docker/{image}.Dockerfile").read_text()
        (period,) = re.findall(r"^HEALTHCHECK .*--start-period=(\S+) ", file, re.M)
        assert service["healthcheck"] == {"start_period": period, "start_interval": "5s" if "llm" in image else "1s"}


@each_text
def test_services_in_compose_are_bounded_and_may_write_nowhere_but_into_volumes(text: str) -> None:
    whole = as_compose(text)
    for service in whole["services"].values():
        assert service["mem_limit"]
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        for mount in service.get("volumes", ()):
            if isinstance(mount, str):
                assert mount.partition(":")[0] in whole["volumes"]
            else:
                assert mount["read_only"]
                assert Path(mount["source"]).is_dir()


@each_text
def test_every_manifest_is_valid(text: str) -> None:
    for manifest in as_manifests(text):
        for version in (OLDEST, ".".join(kubernetes_validate.latest_version().split(".")[:2])):
            kubernetes_validate.validate(manifest, version, strict=True)


@each_text
def test_the_environment_in_a_cluster_is_settings_that_the_service_takes(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for workload in workloads(text).values():
        told = {name: value for name, value in environment(workload).items() if name.startswith("HEDGEROW_")}
        takes(folder_of(container(workload)["image"]), told, tmp_path, monkeypatch)


@each_text
def test_addresses_in_a_cluster_are_services_and_replicas_of_stateful_sets(text: str) -> None:
    found = workloads(text)
    services = {each["metadata"]["name"]: each for each in as_manifests(text) if each["kind"] == "Service"}
    assert services.keys() == found.keys()
    for name, workload in found.items():
        assert selects({"matchLabels": services[name]["spec"]["selector"]}, labels(workload))
        ports = {each["name"] for each in container(workload)["ports"]}
        assert {each["targetPort"] for each in services[name]["spec"]["ports"]} <= ports
    models = json.loads(environment(found["gateway"])["HEDGEROW_GATEWAY_LLM_ADDRESSES"])
    for addresses in models.values():
        for number, address in enumerate(addresses):
            replica, _, service = address.partition(":")[0].partition(".")
            assert replica == f"{service}-{number}"
            assert found[service]["kind"] == "StatefulSet"
            assert number < found[service]["spec"]["replicas"]


@each_text
def test_what_is_mounted_in_a_cluster_is_there(text: str) -> None:
    manifests = as_manifests(text)
    names = {(each["kind"], each["metadata"]["name"]) for each in manifests}
    for workload in workloads(text).values():
        volumes = {each["name"]: each for each in pod(workload)["volumes"]}
        assert {each["name"] for each in container(workload)["volumeMounts"]} == volumes.keys()
        for volume in volumes.values():
            if claim := volume.get("persistentVolumeClaim"):
                assert ("PersistentVolumeClaim", claim["claimName"]) in names
            if secret := volume.get("secret"):
                assert ("Secret", secret["secretName"]) in names


def test_pods_run_as_nobody_in_particular() -> None:
    for workload in workloads(FULL + TENANTS).values():
        assert pod(workload)["securityContext"]["runAsNonRoot"]
        assert pod(workload)["automountServiceAccountToken"] is False
        assert container(workload)["securityContext"]["readOnlyRootFilesystem"]
        assert "memory" in container(workload)["resources"]["limits"]


def test_who_talks_to_the_outside_is_let_out_there_and_nobody_else_is() -> None:
    policies = {
        each["metadata"]["name"]: each["spec"]
        for each in as_manifests(FULL + TENANTS)
        if each["kind"] == "NetworkPolicy"
    }
    outside = {
        name.removesuffix("-outside"): [port["port"] for port in spec["egress"][0]["ports"]]
        for name, spec in policies.items()
        if name.endswith("-outside")
    }
    traces = 4317
    assert outside["llm-remote"] == [traces, 8443]
    assert outside["llm-hub-model"] == [443, traces]
    assert outside["gateway"] == outside["router"] == outside["cache"] == [traces, 6379]
    assert outside["llm-local"] == outside["vision"] == outside["audio"] == [traces]


@pytest.mark.parametrize("render", [compose.render, kubernetes.render], ids=["compose", "k8s"])
def test_no_key_is_written_and_of_callers_keys_the_digest_is(render: Any) -> None:
    text = render(file_of(FULL + TENANTS), KEYS)
    assert "Ab12" not in text
    assert sha256(KEYS["CALLER_KEY"].encode()).hexdigest() in text


def test_a_tenant_of_the_file_has_what_a_tenant_of_the_gateway_has() -> None:
    ours, gateways = Tenant.model_json_schema()["properties"], TenantSettings.model_json_schema()["properties"]
    assert ours.keys() - {"key_env", "key_file", "key_sha256"} == gateways.keys() - {"keys"}
    for name in gateways.keys() - {"keys", "guard", "hits", "prompt"}:  # what these may have, the gateway says
        limits = ("type", "default", "minimum", "exclusiveMinimum", "maximum", "maxLength")
        assert [ours[name].get(limit) for limit in limits] == [gateways[name].get(limit) for limit in limits]
