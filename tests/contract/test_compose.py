"""The compose files fit together with the images and the settings. `make check` also holds them to their schema."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from hedgerow.identities import IDENTITIES, server_name_of
from hedgerow_cli.app import app
from launcher.demo import PULLED, demo_settings, public_models
from services.control import topology
from services.gateway.upstream.discovery import bootstrap
from services.runtime.process.config import load
from tests.contract.accepting import CLASSES, give_only

REPOSITORY = Path(__file__).parents[2]
BASE, GPU, MESH = "docker-compose.yml", "docker-compose.gpu.yml", "docker-compose.mesh.yml"
TOPOLOGY = REPOSITORY / "deploy/docker/topology.yaml"


ONE_SHOT = ("certs", "models")  # services that end when their work is done


def read(*names: str) -> dict[str, Any]:
    """The services of a compose file and its overrides, variables replaced by their defaults."""
    merged: dict[str, Any] = {}
    for name in names:
        text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (REPOSITORY / name).read_text())
        for service, fields in yaml.safe_load(text)["services"].items():
            before = merged.setdefault(service, {})
            environment = {**before.get("environment", {}), **fields.get("environment", {})}
            waits = {**before.get("depends_on", {}), **fields.get("depends_on", {})}
            volumes = [*before.get("volumes", []), *fields.get("volumes", [])]
            together = {"environment": environment, "depends_on": waits, "volumes": volumes}
            merged[service] = {**before, **fields, **together}
    return merged


MESHES = {"demo": read(BASE), "gpu": read(BASE, GPU), "mesh": read(BASE, MESH)}
BUILT = [
    pytest.param(fields, id=f"{mesh}-{name}")
    for mesh, services in MESHES.items()
    for name, fields in services.items()
    if "build" in fields and name not in ONE_SHOT
]
each_mesh = pytest.mark.parametrize("services", MESHES.values(), ids=MESHES)
each_built = pytest.mark.parametrize("fields", BUILT)


def dockerfile(fields: dict[str, Any]) -> Path:
    return REPOSITORY / fields["build"]["dockerfile"]


def folder(fields: dict[str, Any]) -> str:
    """The service's folder below `services/`."""
    return dockerfile(fields).name.removesuffix(".Dockerfile").removesuffix("-cuda")


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of identities, as the mesh's `certs` makes them: with what Redis needs."""
    folder = tmp_path_factory.mktemp("certs")
    command = [str(folder) if each == "/certs" else each for each in MESHES["mesh"]["certs"]["command"]]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    return folder


@each_built
def test_the_environment_is_settings_that_the_service_takes(
    fields: dict[str, Any], secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = {name: value for name, value in fields["environment"].items() if name.startswith("HEDGEROW_")}
    cls = CLASSES[folder(fields)]
    assert all(name.startswith(cls.model_config.get("env_prefix", "-")) for name in ours)
    ours |= dict(re.findall(r"(HEDGEROW_\w+_ADDRESS)=(\S+)", dockerfile(fields).read_text()))
    places = {"/etc/hedgerow/topology.yaml": TOPOLOGY, "/tls/redis.yaml": secrets / folder(fields) / "redis.yaml"}
    give_only(monkeypatch, {name: str(places.get(value, value)) for name, value in ours.items()})
    load(cls, [], prog="service")


@each_mesh
def test_services_wait_only_for_what_can_be_waited_for(services: dict[str, Any]) -> None:
    for fields in services.values():
        for name, wait in fields.get("depends_on", {}).items():
            if wait == {"condition": "service_completed_successfully"}:
                assert "restart" not in services[name], "a service that completes is not restarted"
            else:
                assert wait == {"condition": "service_healthy"}
                checked = "healthcheck" in services[name] or "HEALTHCHECK" in dockerfile(services[name]).read_text()
                assert checked, name


@each_built
def test_a_service_that_starts_is_asked_often_for_as_long_as_its_image_says(fields: dict[str, Any]) -> None:
    (period,) = re.findall(r"^HEALTHCHECK .*--start-period=(\S+) ", dockerfile(fields).read_text(), re.M)
    often = "5s" if folder(fields) == "llm" else "1s"
    assert fields["healthcheck"] == {"start_period": period, "start_interval": often}


@each_mesh
def test_the_gateway_serves_http_too(services: dict[str, Any]) -> None:
    _, _, port = services["gateway"]["environment"]["HEDGEROW_GATEWAY_HTTP_ADDRESS"].rpartition(":")
    assert f"127.0.0.1:{port}:{port}" in services["gateway"]["ports"]


@each_mesh
def test_only_the_way_in_and_jaeger_are_reachable_and_only_from_this_machine(services: dict[str, Any]) -> None:
    published = {name: port for name, fields in services.items() for port in fields.get("ports", [])}
    assert published.keys() == {"gateway", "jaeger", "edge"} & services.keys()
    assert all(port.startswith("127.0.0.1:") for port in published.values())


@each_mesh
def test_every_address_is_a_service_and_the_port_it_listens_on(services: dict[str, Any]) -> None:
    settings = services["gateway"]["environment"]
    named = [settings[f"HEDGEROW_GATEWAY_{name}_ADDRESS"] for name in ("CACHE", "ROUTER", "VISION", "AUDIO")]
    for target in [*named, *json.loads(settings["HEDGEROW_GATEWAY_LLM_ADDRESSES"]).values()]:
        for address in listed(target):
            name, _, port = address.partition(":")
            assert f"EXPOSE {port}\n" in dockerfile(services[name]).read_text()


def listed(target: str) -> list[str]:
    """The addresses that a target stands for: those of the topology, where it is `xds:///name`."""
    if not target.startswith("xds:///"):
        return [target]
    return [each.address for each in topology.read(TOPOLOGY).services[target.removeprefix("xds:///")].endpoints]


@each_mesh
def test_the_router_the_gateway_and_the_models_agree_on_names(services: dict[str, Any]) -> None:
    catalogue = json.loads(services["router"]["environment"]["HEDGEROW_ROUTER_MODELS"])
    reachable = json.loads(services["gateway"]["environment"]["HEDGEROW_GATEWAY_LLM_ADDRESSES"])
    assert {model["name"] for model in catalogue} == reachable.keys()
    for name, target in reachable.items():
        for address in listed(target):
            assert services[address.partition(":")[0]]["environment"]["HEDGEROW_LLM_MODEL_NAME"] == name


def test_the_demo_has_the_models_of_hedgerow_up() -> None:
    models = MESHES["demo"]["router"]["environment"]["HEDGEROW_ROUTER_MODELS"]
    assert json.loads(models) == json.loads(demo_settings(public_models())["router"]["MODELS"])


@each_mesh
def test_every_service_has_a_memory_limit_and_comes_back(services: dict[str, Any]) -> None:
    for name, fields in services.items():
        assert fields.get("mem_limit"), name
        assert fields.get("restart") == "unless-stopped" or name in ONE_SHOT, name


@each_mesh
def test_mounted_files_of_the_repository_exist_and_are_read_only(services: dict[str, Any]) -> None:
    mounted = [volume for fields in services.values() for volume in fields.get("volumes", []) if "./" in volume]
    for volume in mounted:
        source, _, mode = volume.partition(":")
        assert mode.endswith(":ro")
        assert (REPOSITORY / source).exists()


def test_the_models_that_services_read_are_those_that_are_pulled() -> None:
    settings = "\n".join(value for fields in MESHES["demo"].values() for value in fields["environment"].values())
    named = re.findall(r"/models/([\w-]+)", settings)
    assert MESHES["demo"]["models"]["command"] == ["models", "pull", *PULLED]
    assert set(named) | {MESHES["demo"]["vision"]["environment"]["HEDGEROW_VISION_DEFAULT_MODEL"]} == set(PULLED)


mesh = MESHES["mesh"]


def identity(name: str) -> str:
    """The identity of a service of the mesh."""
    return name if name in ("edge", "redis") else folder(mesh[name])


def test_each_service_of_the_mesh_sees_its_own_certificate_alone() -> None:
    holders = [name for name in mesh if name not in (*ONE_SHOT, "jaeger")]
    for name in holders:
        (volume,) = [each for each in mesh[name]["volumes"] if isinstance(each, dict)]
        own = {"type": "volume", "source": "certs", "target": "/tls", "read_only": True}
        assert volume == {**own, "volume": {"subpath": identity(name)}}
        assert mesh[name]["depends_on"]["certs"] == {"condition": "service_completed_successfully"}
    assert {identity(name) for name in holders} < set(IDENTITIES)


def test_each_service_of_the_mesh_speaks_tls_to_the_others() -> None:
    for name, fields in mesh.items():
        if "build" in fields and name not in ONE_SHOT:
            prefix = f"HEDGEROW_{identity(name).upper()}_"
            assert fields["environment"][f"{prefix}TLS_DIR"] == "/tls"
            assert fields["environment"].get(f"{prefix}PLAINTEXT", "false") == "false"
    assert topology.read(TOPOLOGY).mtls


def test_redis_in_the_mesh_wants_a_password_and_tls_and_its_clients_have_both(secrets: Path) -> None:
    program, config, *options = mesh["redis"]["command"]
    given = dict(zip(options[::2], options[1::2], strict=True))
    assert (program, config, given["--port"]) == ("redis-server", "/tls/redis.conf", "0")
    assert {each: given[f"--tls-{each}"] for each in ("cert-file", "key-file", "ca-cert-file")} == {
        "cert-file": "/tls/tls.crt",
        "key-file": "/tls/tls.key",
        "ca-cert-file": "/tls/ca.crt",
    }
    (password,) = re.findall(r"^requirepass (\w{64})$", (secrets / "redis/redis.conf").read_text(), re.M)
    assert mesh["redis"]["networks"]["default"]["aliases"] == ["redis.hedgerow"]
    url = f"rediss://:{password}@redis.hedgerow:{given['--tls-port']}/0?ssl_ca_certs=/tls/ca.crt"
    asking = {name: folder(mesh[name]) for name in ("cache", "router", "gateway", "gateway-2")}
    for name, service in asking.items():
        environment = mesh[name]["environment"]
        assert environment[f"HEDGEROW_{service.upper()}_CONFIG"] == "/tls/redis.yaml"
        assert not any("REDIS" in variable for variable in environment)
        settings = yaml.safe_load((secrets / service / "redis.yaml").read_text())
        assert settings.pop("redis_url") == url
        assert settings.keys() == ({"encryption_key"} if service == "cache" else set())


def test_files_of_redis_are_readable_by_its_group(secrets: Path) -> None:
    _, _, group = mesh["certs"]["user"].partition(":")
    assert mesh["redis"]["user"].partition(":")[2] == group
    assert all(file.stat().st_mode & 0o040 for file in (secrets / "redis").iterdir())


def test_the_topology_of_the_mesh_names_its_services() -> None:
    for name, service in topology.read(TOPOLOGY).services.items():
        for each in service.endpoints:
            host, _, port = each.address.partition(":")
            http = mesh[host]["environment"].get("HEDGEROW_GATEWAY_HTTP_ADDRESS", ":0").rpartition(":")[2]
            assert each.http_port == int(http)
            assert f"EXPOSE {port}\n" in dockerfile(mesh[host]).read_text()
            assert (service.identity or name.partition("-")[0]) == identity(host)


def test_essential_services_have_two_replicas() -> None:
    replicas = {name: fields.get("deploy", {}).get("replicas", 1) for name, fields in mesh.items()}
    assert all(replicas[name] == 2 for name in ("cache", "router", "llm-fast", "llm-quality"))
    assert len(listed("xds:///gateway")) == 2
    assert mesh["gateway"]["environment"] == {**mesh["gateway"]["environment"], **mesh["gateway-2"]["environment"]}


def test_the_gateways_of_the_mesh_ask_the_control_plane_by_the_name_in_its_certificate() -> None:
    for name in ("gateway", "gateway-2"):
        client = bootstrap(mesh[name]["environment"])
        host, _, port = client.control.partition(":")
        assert host == server_name_of("control")
        assert mesh["control"]["networks"]["default"]["aliases"] == [host]
        assert f"EXPOSE {port}\n" in dockerfile(mesh["control"]).read_text()


def test_envoy_in_the_mesh_listens_where_it_is_published() -> None:
    edge = topology.read(TOPOLOGY).edge
    assert edge
    assert [port.rpartition(":")[2] for port in mesh["edge"]["ports"]] == [edge.address.rpartition(":")[2]]
    assert edge.service in topology.read(TOPOLOGY).services
