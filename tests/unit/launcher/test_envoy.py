"""Envoy's bootstrap and command line."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher import envoy
from tests.conftest import REPOSITORY


def bootstrap(folder: Path, **settings: Any) -> dict[str, Any]:
    defaults = {"node_id": "edge-1", "region": "west", "control_address": "127.0.0.1:50060"}
    return yaml.safe_load(envoy.write_bootstrap(folder, **{**defaults, **settings}).read_text())


def clusters(folder: Path, **settings: Any) -> dict[str, dict[str, Any]]:
    return {found["name"]: found for found in bootstrap(folder, **settings)["static_resources"]["clusters"]}


def test_the_bootstrap_that_compose_mounts_is_up_to_date(tmp_path: Path) -> None:
    envoy.write_bootstrap(tmp_path, **envoy.COMPOSE)
    kept = {file.name: file.read_text() for file in (REPOSITORY / "deploy/envoy").iterdir()}
    written = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert kept == written, "run `python -m launcher.envoy deploy/envoy`"


def test_envoy_sends_its_identity_and_locality_to_the_control_plane(tmp_path: Path) -> None:
    node = bootstrap(tmp_path)["node"]
    assert node == {"id": "edge-1", "cluster": "edge", "locality": {"region": "west"}}


def test_a_name_is_looked_up_again_and_again_and_an_address_never(tmp_path: Path) -> None:
    kinds = [
        clusters(tmp_path, control_address=at)["control"]["type"] for at in ("127.0.0.1:1", "[::1]:1", "control:1")
    ]
    assert kinds == ["STATIC", "STATIC", "STRICT_DNS"]


def test_without_certificates_there_is_neither_tls_nor_a_file_of_secrets(tmp_path: Path) -> None:
    assert "transport_socket" not in clusters(tmp_path)["control"]
    assert [file.name for file in tmp_path.iterdir()] == [envoy.BOOTSTRAP]


def test_with_certificates_the_control_plane_has_to_prove_that_it_is(tmp_path: Path) -> None:
    context = clusters(tmp_path, tls_dir=Path("/tls"))["control"]["transport_socket"]["typed_config"]
    validation = context["common_tls_context"]["combined_validation_context"]
    (name,) = validation["default_validation_context"]["match_typed_subject_alt_names"]
    assert name == {"san_type": "URI", "matcher": {"exact": "spiffe://hedgerow/control"}}
    assert context["sni"] == "control.hedgerow"


@pytest.mark.parametrize(
    ("file", "name", "folder"),
    [
        ("sds_cert.yaml", "mesh_cert", "/tls"),
        ("sds_ca.yaml", "mesh_ca", "/tls"),
        ("sds_edge.yaml", "edge", "/edge-tls"),
    ],
)
def test_each_secret_is_read_again_when_its_folder_changes(tmp_path: Path, file: str, name: str, folder: str) -> None:
    bootstrap(tmp_path, tls_dir=Path("/tls"), edge_tls_dir=Path("/edge-tls"))
    (secret,) = yaml.safe_load((tmp_path / file).read_text())["resources"]
    content = secret.get("tls_certificate") or secret["validation_context"]
    assert secret["name"] == name
    assert content["watched_directory"] == {"path": folder}


def test_spans_go_to_a_cluster_only_where_there_is_a_collector(tmp_path: Path) -> None:
    assert clusters(tmp_path).keys() == {"control"}
    assert clusters(tmp_path, otlp_address="collector:4317").keys() == {"control", "otlp"}


def test_envoy_refuses_before_it_runs_out_of_memory_or_connections(tmp_path: Path) -> None:
    manager = bootstrap(tmp_path)["overload_manager"]
    heap, connections = (monitor["typed_config"] for monitor in manager["resource_monitors"])
    assert heap["max_heap_size_bytes"] == 512 * 2**20
    assert connections["max_active_downstream_connections"] == 20_000
    shares = [action["triggers"][0]["threshold"]["value"] for action in manager["actions"]]
    assert shares == sorted(shares)  # first it makes room, then refuses calls, then connections
    assert shares[-1] < 1
    assert bootstrap(tmp_path)["admin"]["ignore_global_conn_limit"]  # operators can connect at the connection limit


def test_a_change_of_its_listener_outlives_the_longest_answer() -> None:
    command = envoy.command(Path("/somewhere/envoy.yaml"))
    assert int(command[command.index("--drain-time-s") + 1]) >= 600
    assert "--disable-hot-restart" in command


async def test_an_envoy_that_stands_still_has_not_drained_and_one_that_has_ended_has() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:  # the kernel accepts, and no page is served
        address = "{}:{}".format(*listening.getsockname())
        assert not await envoy.drain(address, 0.2)
    assert await envoy.drain(address, 20)
