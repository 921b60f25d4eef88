"""The output of `hedgerow render` is valid, and the services accept its settings."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from launcher.meshfile import compose, helm
from launcher.meshfile.fields import Surroundings
from launcher.meshfile.reading import parse
from launcher.meshfile.schema import MeshFile
from launcher.meshfile.tenants import Tenant
from services.gateway.settings.tenants import TenantSettings
from tests.contract.accepting import accepted
from tests.contract.chart import CHART, ask, container, environment, needs_helm, over

REPOSITORY = Path(__file__).parents[2]
KEYS = {
    "PROVIDER_KEY": "sk-Ab12Cd34",
    "REDIS": "redis://:pw-Ab12@redis:6379/0",
    "CACHE_KEY": "Ab12" * 10 + "Ab0=",
    "CALLER_KEY": "caller-Ab12",
}
SMALLEST = "models: {gpt: 'https://api.example/v1'}\n"
TENANTS = "tenants:\n  acme: {key_env: CALLER_KEY, concurrency: 4}\n"
SEVERAL = """\
models: {gpt: {url: ['https://a.example/v1', 'https://b.example/v1']}}
cache: {redis_url: 'redis://redis.example:6380/0'}
audio: {hub: large-v3-turbo}
"""
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
gateway: {http: 8080, workers: 2, settings: {hedge: {mode: fixed}, grace_ms: 60000, metrics_address: "127.0.0.1:9465"}}
"""


def file_of(text: str) -> MeshFile:
    return parse(text, "mesh.yaml", Surroundings(REPOSITORY, KEYS)).whole()


def as_compose(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(compose.render(file_of(text), KEYS))
    return found


def as_values(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(helm.render(file_of(text), KEYS))
    return found


def folder_of(image: str) -> str:
    return image.rpartition("/")[2].partition(":")[0].removesuffix("-cuda")


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
        settings = {
            name: re.sub(r"\$\{(\w+):\?\}", lambda found: KEYS[found[1]], value).replace("$$", "$")
            for name, value in service["environment"].items()
        }
        accepted(folder_of(service["image"]), settings, tmp_path, monkeypatch)


@each_text
def test_addresses_in_compose_are_services(text: str) -> None:
    services = as_compose(text)["services"]
    settings = services["gateway"]["environment"]
    models = json.loads(settings["HEDGEROW_GATEWAY_LLM_ADDRESSES"])
    named = [settings[f"HEDGEROW_GATEWAY_{name}_ADDRESS"] for name in ("CACHE", "ROUTER", "VISION", "AUDIO")]
    for address in [*filter(None, named), *(each for addresses in models.values() for each in addresses)]:
        assert address.partition(":")[0] in services
    assert services["gateway"]["depends_on"].keys() == services.keys() - {"gateway"}
    published = [port for service in services.values() for port in service.get("ports", ())]
    http = "127.0.0.1:8080" if "http: 8080" in text else "127.0.0.1:50080"
    assert published == ["127.0.0.1:50050:50050", f"{http}:8080"]


@each_text
def test_services_in_compose_have_the_start_period_of_their_images(text: str) -> None:
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


each_mesh = pytest.mark.parametrize("mesh", [SMALLEST, FULL, SEVERAL], ids=["smallest", "full", "several"])


@each_mesh
def test_values_are_what_the_chart_takes(mesh: str) -> None:
    values, chart = as_values(mesh + TENANTS), yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    Draft7Validator(schema).validate(over(chart, values))


@needs_helm
@each_mesh
def test_the_chart_renders_settings_that_the_services_accept(
    mesh: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (answer,) = ask([as_values(mesh + TENANTS)])
    assert (answer.error, answer.warnings) == ("", [])
    (tmp_path / "topology.yaml").write_text(answer.kind("ConfigMap")["topology"]["data"]["topology.yaml"])
    parts_of = {container.part.name for container in helm.planned(file_of(mesh))}
    assert answer.ours.keys() == parts_of | {"control"}
    for workload in answer.ours.values():
        accepted(folder_of(container(workload)["image"]), environment(workload), tmp_path, monkeypatch)


@needs_helm
def test_the_chart_gives_services_the_settings_that_compose_gives_them() -> None:
    """Addresses, TLS and what the chart adds apart: both come from one file."""
    (answer,) = ask([as_values(FULL + TENANTS)])
    elsewhere = r"_(ADDRESS|ADDRESSES|TLS_DIR|PLAINTEXT|GRACE_MS|LAME_DUCK_MS|DATABASE|TOOLS|WORKERS)$"
    for found in helm.planned(file_of(FULL + TENANTS)):
        settings, prefix = environment(answer.ours[found.part.name], "key"), found.part.prefixed("")
        wanted = {name: value for name, value in found.environment.items() if name.startswith(prefix)}
        for name in [name for name in wanted if not re.search(elsewhere, name)]:
            assert as_data(settings[name]) == as_data(wanted[name]), name
        assert {name: settings[name] for name in found.key_names if "ENCRYPTION" not in name} == {
            name: "key" for name in found.key_names if "ENCRYPTION" not in name
        }


def as_data(text: str) -> Any:
    """JSON as what it says; the order of names says nothing."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_models_have_their_source_and_their_egress() -> None:
    models = {each["service"]: each for each in as_values(FULL + TENANTS)["models"]}
    sources = {name: (each["source"], each.get("egress")) for name, each in models.items()}
    https = {"ports": [{"port": 8443, "protocol": "TCP"}]}
    assert sources == {"remote": ("provider", [https]), "hub-model": ("hub", None), "local": ("volume", None)}
    assert (models["remote"]["replicas"], models["hub-model"]["gpus"]) == (2, 1)
    assert models["remote"]["secrets"] == {"OPENAI__API_KEY": {"name": "hedgerow-keys", "key": "PROVIDER_KEY"}}
    assert models["local"]["settings"]["VLLM__MODEL"] == "/models/demo-llm"


def test_processes_become_pods_and_state_that_is_not_shared_has_one() -> None:
    assert as_values(FULL + TENANTS)["gateway"]["replicas"] == 2
    alone = as_values(SMALLEST)
    assert alone["redis"] == {"mode": "none"}
    assert [alone[name]["replicas"] for name in ("gateway", "router", "cache")] == [1, 1, 1]
    assert alone["cache"]["persistence"] == {"enabled": True}
    assert as_values(f"{SMALLEST}cache: off\n")["cache"] == {"enabled": False}


@pytest.mark.parametrize("render", [compose.render, helm.render], ids=["compose", "helm"])
def test_no_key_is_written_and_of_callers_keys_the_digest_is(render: Any) -> None:
    text = render(file_of(FULL + TENANTS), KEYS)
    assert "Ab12" not in text
    assert sha256(KEYS["CALLER_KEY"].encode()).hexdigest() in text


def test_a_tenant_of_the_file_has_what_a_tenant_of_the_gateway_has() -> None:
    ours, gateways = Tenant.model_json_schema()["properties"], TenantSettings.model_json_schema()["properties"]
    assert ours.keys() - {"key_env", "key_file", "key_sha256"} == gateways.keys() - {"keys"}
    for name in gateways.keys() - {"keys", "guard", "hits", "prompt"}:  # the gateway validates the values of these
        limits = ("type", "default", "minimum", "exclusiveMinimum", "maximum", "maxLength", "items")
        own = ours[name]
        if gateways[name].get("type") == "array" and "anyOf" in own:  # the file takes one text, too, in a list's place
            one, many = own["anyOf"]
            assert one == many["items"]
            own = {**own, **many}
        assert [own.get(limit) for limit in limits] == [gateways[name].get(limit) for limit in limits]
