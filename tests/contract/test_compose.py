"""The compose files fit together with the images and the settings. `make check` also holds them to their schema."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.settings import settings_classes
from hedgerow.cli.mesh import DEMO_MODELS
from services.runtime.config import load

REPOSITORY = Path(__file__).parents[2]
BASE, GPU = "docker-compose.yml", "docker-compose.gpu.yml"
CLASSES = {cls.__module__.split(".")[1]: cls for cls in settings_classes()}


def read(*names: str) -> dict[str, Any]:
    """The services of a compose file and its overrides, variables replaced by their defaults."""
    merged: dict[str, Any] = {}
    for name in names:
        text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (REPOSITORY / name).read_text())
        for service, fields in yaml.safe_load(text)["services"].items():
            before = merged.setdefault(service, {})
            environment = {**before.get("environment", {}), **fields.get("environment", {})}
            merged[service] = {**before, **fields, "environment": environment}
    return merged


MESHES = {"demo": read(BASE), "gpu": read(BASE, GPU)}
BUILT = [
    pytest.param(fields, id=f"{mesh}-{name}")
    for mesh, services in MESHES.items()
    for name, fields in services.items()
    if "build" in fields
]
each_mesh = pytest.mark.parametrize("services", MESHES.values(), ids=MESHES)
each_built = pytest.mark.parametrize("fields", BUILT)


def dockerfile(fields: dict[str, Any]) -> Path:
    return REPOSITORY / fields["build"]["dockerfile"]


def folder(fields: dict[str, Any]) -> str:
    """The service's folder below `services/`."""
    return dockerfile(fields).name.removesuffix(".Dockerfile").removesuffix("-cuda")


@each_built
def test_the_environment_is_settings_that_the_service_takes(
    fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in os.environ:
        if name.startswith("HEDGEROW_"):
            monkeypatch.delenv(name)
    ours = {name: value for name, value in fields["environment"].items() if name.startswith("HEDGEROW_")}
    cls = CLASSES[folder(fields)]
    assert all(name.startswith(cls.model_config.get("env_prefix", "-")) for name in ours)
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    load(cls, [], prog="service")


@each_mesh
def test_services_wait_only_for_services_with_a_health_check(services: dict[str, Any]) -> None:
    for fields in services.values():
        for name, wait in fields.get("depends_on", {}).items():
            assert wait == {"condition": "service_healthy"}
            assert "HEALTHCHECK" in dockerfile(services[name]).read_text()


@each_mesh
def test_only_the_gateway_and_jaeger_are_reachable_and_only_from_this_machine(services: dict[str, Any]) -> None:
    published = {name: port for name, fields in services.items() for port in fields.get("ports", [])}
    assert published.keys() == {"gateway", "jaeger"}
    assert all(port.startswith("127.0.0.1:") for port in published.values())


@each_mesh
def test_every_address_is_a_service_and_the_port_it_listens_on(services: dict[str, Any]) -> None:
    settings = services["gateway"]["environment"]
    addresses = [settings["HEDGEROW_GATEWAY_CACHE_ADDRESS"], settings["HEDGEROW_GATEWAY_ROUTER_ADDRESS"]]
    for address in [*addresses, *json.loads(settings["HEDGEROW_GATEWAY_LLM_ADDRESSES"]).values()]:
        name, _, port = address.partition(":")
        assert f"EXPOSE {port}\n" in dockerfile(services[name]).read_text()


@each_mesh
def test_the_router_the_gateway_and_the_models_agree_on_names(services: dict[str, Any]) -> None:
    catalogue = json.loads(services["router"]["environment"]["HEDGEROW_ROUTER_MODELS"])
    reachable = json.loads(services["gateway"]["environment"]["HEDGEROW_GATEWAY_LLM_ADDRESSES"])
    assert {model["name"] for model in catalogue} == reachable.keys()
    for name, address in reachable.items():
        assert services[address.partition(":")[0]]["environment"]["HEDGEROW_LLM_MODEL_NAME"] == name


def test_the_demo_has_the_models_of_hedgerow_up() -> None:
    assert json.loads(MESHES["demo"]["router"]["environment"]["HEDGEROW_ROUTER_MODELS"]) == list(DEMO_MODELS)


@each_mesh
def test_every_service_has_a_memory_limit_and_comes_back(services: dict[str, Any]) -> None:
    for name, fields in services.items():
        assert fields.get("mem_limit"), name
        assert fields.get("restart") == "unless-stopped", name


@each_mesh
def test_models_are_mounted_read_only_and_exist(services: dict[str, Any]) -> None:
    mounted = [
        volume for fields in services.values() for volume in fields.get("volumes", []) if volume.startswith("./")
    ]
    for volume in mounted:
        source, _, mode = volume.partition(":")
        assert mode.endswith(":ro")
        assert (REPOSITORY / source).is_dir()


def test_the_models_of_the_demo_are_in_the_repository() -> None:
    settings = "\n".join(value for fields in MESHES["demo"].values() for value in fields["environment"].values())
    named = re.findall(r"/models/([\w-]+)", settings)
    assert named
    assert all((REPOSITORY / "models" / name / "config.json").exists() for name in named)
