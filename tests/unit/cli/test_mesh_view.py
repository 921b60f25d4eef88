"""The output of `hedgerow mesh status` for replies of a control plane."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from hedgerow.control.v1 import control_pb2 as pb
from hedgerow_cli.mesh_view import as_data, as_tables, duration, problems
from tests.unit.cli.meshes import EDS, a_mesh


def shown(mesh: pb.GetMeshResponse, *, colours: bool = False) -> list[str]:
    screen = Console(file=StringIO(), width=120, force_terminal=colours, color_system="standard" if colours else None)
    screen.print(as_tables(mesh))
    assert isinstance(screen.file, StringIO)
    return [line.rstrip() for line in screen.file.getvalue().splitlines()]


def cells(mesh: pb.GetMeshResponse, start: str) -> list[str]:
    return next(line.split() for line in shown(mesh) if line.startswith(start))


def test_a_mesh_that_is_well_has_no_problem() -> None:
    assert problems(a_mesh()) == []
    lines = shown(a_mesh())
    assert lines[0] == "version 012345 of /mesh/topology.yaml"
    assert lines[2].split() == ["service", "balance", "endpoint", "health", "for", "traffic"]
    assert lines[3].split() == ["cache", "ring_hash", "127.0.0.1:7011", "SERVING", "12", "s", "in"]
    assert lines[4].split() == ["127.0.0.1:7012", "SERVING", "1", "min", "in"]  # the service is named once
    assert cells(a_mesh(), "gateway-1") == ["gateway-1", "gRPC", "C-core", "250", "ms", "cache", "aaaaaa"]
    assert cells(a_mesh(), "envoy") == ["envoy", "envoy", "2", "h", "everything", "bbbbbb"]


@pytest.mark.parametrize(
    ("state", "name"),
    [
        (pb.ENDPOINT_HEALTH_UNSPECIFIED, "UNKNOWN"),
        (pb.ENDPOINT_HEALTH_NOT_SERVING, "NOT_SERVING"),
        (pb.ENDPOINT_HEALTH_UNREACHABLE, "UNREACHABLE"),
    ],
)
def test_an_endpoint_that_does_not_serve_is_a_problem(state: pb.EndpointHealth, name: str) -> None:
    mesh = a_mesh()
    mesh.services[0].endpoints[1].health = state
    mesh.services[0].endpoints[1].in_service = False
    assert problems(mesh) == [f"cache at 127.0.0.1:7012 is {name}"]
    assert shown(mesh)[4].split()[1:] == [name, "1", "min", "out"]
    assert shown(mesh)[-1] == problems(mesh)[0]


def test_a_client_that_refuses_is_a_problem_in_its_own_words_and_in_red() -> None:
    mesh = a_mesh()
    mesh.clients[0].subscriptions[0].sent_version = "cccccccccccc"
    mesh.clients[0].subscriptions[0].refused = "weight is missing"
    assert problems(mesh) == ["gateway-1 refuses EDS: weight is missing"]
    assert "aaaaaa, refused cccccc" in " ".join(cells(mesh, "gateway-1"))
    assert shown(mesh, colours=True)[-1] == "\x1b[31mgateway-1 refuses EDS: weight is missing\x1b[0m"


def test_a_client_that_has_not_answered_yet_is_no_problem_but_seen() -> None:
    mesh = a_mesh()
    mesh.clients[0].subscriptions[0].sent_version = "cccccccccccc"
    assert problems(mesh) == []
    assert "aaaaaa, sent cccccc" in " ".join(cells(mesh, "gateway-1"))
    mesh.clients[0].subscriptions[0].acked_version = ""
    assert "none, sent cccccc" in " ".join(cells(mesh, "gateway-1"))


def test_a_topology_that_was_refused_is_a_problem() -> None:
    mesh = a_mesh()
    mesh.topology_problem = "services.cache: Field required"
    assert problems(mesh) == ["the topology was refused: services.cache: Field required"]


def test_a_drill_is_said_and_is_no_problem() -> None:
    mesh = a_mesh()
    mesh.services[0].drill = "50% of calls fail with UNAVAILABLE"
    assert problems(mesh) == []
    assert shown(mesh)[-1] == "drill: cache: 50% of calls fail with UNAVAILABLE"


def test_locality_and_weight_of_endpoints_are_shown_where_they_differ() -> None:
    mesh = a_mesh()
    mesh.services[0].endpoints[0].MergeFrom(pb.Endpoint(region="west", zone="a", build="canary", weight=9))
    lines = shown(mesh)
    columns = ["service", "balance", "endpoint", "region", "zone", "build", "weight", "health", "for", "traffic"]
    assert lines[2].split() == columns
    assert lines[3].split()[3:7] == ["west", "a", "canary", "9"]


def test_no_client_is_said() -> None:
    mesh = a_mesh()
    del mesh.clients[:]
    assert shown(mesh)[-1] == "no client is connected over xDS"


def test_programs_get_everything_with_numbers_as_numbers() -> None:
    mesh = a_mesh()
    mesh.clients[0].subscriptions[0].refused = "no"
    data = json.loads(json.dumps(as_data(mesh)))
    assert (data["ok"], data["problems"]) == (False, ["gateway-1 refuses EDS: no"])
    assert data["services"][0]["endpoints"][0] == {
        "address": "127.0.0.1:7011",
        "region": "",
        "zone": "",
        "build": "",
        "weight": 1,
        "health": "SERVING",
        "health_ms": 12_300,
        "in_service": True,
    }
    [held] = data["clients"][0]["subscriptions"]
    assert (held["type_url"], held["names"], held["refused"]) == (EDS, ["cache"], "no")
    assert as_data(a_mesh())["ok"] is True


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (999, "999 ms"), (1_000, "1 s"), (119_000, "1 min"), (7_200_000, "2 h"), (172_800_000, "2 d")],
)
def test_times_are_short(ms: int, text: str) -> None:
    assert duration(ms) == text
