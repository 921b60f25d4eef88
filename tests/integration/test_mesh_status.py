"""`hedgerow mesh status` as its users run it. The control plane is scripted."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hedgerow.control.v1 import control_pb2 as pb
from launcher.processes import free_port
from services.runtime.process.health import Health
from tests import listings
from tests.integration.command import launch, run
from tests.integration.scripted import Refusal
from tests.integration.scripted_control import ScriptedControl, serve_control
from tests.unit.cli.meshes import a_mesh


@pytest.fixture
async def control() -> AsyncIterator[ScriptedControl]:
    async with serve_control() as served:
        yield served


async def test_a_mesh_that_is_well_exits_with_0(control: ScriptedControl) -> None:
    code, out, err = await run("mesh", "status", "--control", control.target)
    assert (code, err) == (0, "")
    assert "127.0.0.1:7011" in out
    assert "\x1b" not in out
    assert control.requests == [pb.GetMeshRequest()]


async def test_an_endpoint_that_does_not_serve_exits_with_1_and_json_has_the_reason(control: ScriptedControl) -> None:
    mesh = a_mesh()
    mesh.services[0].endpoints[0].health = pb.ENDPOINT_HEALTH_UNREACHABLE
    control.script = [mesh]
    code, out, _ = await run("mesh", "status", "--json", HEDGEROW_TARGET_CONTROL=control.target)
    assert (code, json.loads(out)["problems"]) == (1, ["cache at 127.0.0.1:7011 is UNREACHABLE"])


async def test_the_control_plane_of_the_running_mesh_is_asked(control: ScriptedControl, tmp_path: Path) -> None:
    services = [{"name": "control", "address": control.target, "speaks": "grpc"}]
    with listings.running(tmp_path, services):
        code, _, _ = await run("mesh", "status", "--state-dir", str(tmp_path))
    assert code == 0


async def test_no_control_plane_is_an_error_that_says_what_to_do() -> None:
    target = f"127.0.0.1:{free_port()}"
    code, out, err = await run("mesh", "status", "--control", target)
    message = f'no control plane at {target}; start one with "hedgerow up --mesh"'
    assert (code, out, err) == (1, "", f"hedgerow: {message}\n")
    code, out, err = await run("mesh", "status", "--control", target, "--json")
    assert (code, err) == (1, "")
    error = json.loads(out)["error"]
    assert (error["reason"], error["message"]) == ("NO_CONTROL_PLANE", message)


async def test_with_a_stopped_control_plane_status_asks_the_services(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, as a stopped process does, and says nothing
        control = f"127.0.0.1:{silent.getsockname()[1]}"
        async with serve_health() as serving:
            services = [{"name": "control", "address": control}, {"name": "cache", "address": serving}]
            with listings.running(tmp_path, services):
                asked = ("mesh", "status", "--state-dir", str(tmp_path))
                (code, out, err), (_, data, _) = await asyncio.gather(run(*asked), run(*asked, "--json"))
    assert code == 1
    message = f"the control plane at {control} gave no answer within 2 s"
    assert err.startswith(f"hedgerow: {message}; clients keep the configuration")
    assert f"control at {control}: no answer within 2 s" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["cache", serving, "SERVING"] in rows
    assert json.loads(data)["error"]["message"] == message
    assert [each["health"] for each in json.loads(data)["services"]] == ["UNREACHABLE", "SERVING"]


@asynccontextmanager
async def serve_health() -> AsyncIterator[str]:
    """A service whose health says SERVING; its address."""
    checks, server = Health(), grpc.aio.server()
    checks.set("", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield address
    await server.stop(0)


async def test_a_control_plane_that_refuses_is_quoted(control: ScriptedControl) -> None:
    control.script = [Refusal("PERMISSION_DENIED", "not for gateway", reason="WRONG_IDENTITY")]
    code, out, err = await run("mesh", "status", "--control", control.target)
    assert (code, out, err) == (1, "", "hedgerow: not for gateway\n")


async def test_watching_goes_on_while_the_control_plane_is_away_and_ends_on_interrupt(control: ScriptedControl) -> None:
    watching = await launch("mesh", "status", "--watch", "--json", "--control", control.target)
    assert watching.stdout
    assert watching.stderr
    async with asyncio.timeout(60):
        assert json.loads(await watching.stdout.readline())["ok"] is True
        control.script = [Refusal("UNAVAILABLE", "starting")]
        while (line := await watching.stderr.readline()) != b"hedgerow: starting\n":
            assert line.endswith(b"after 2 s\n")  # the control plane got no core for that long
        control.script = [a_mesh()]
        assert json.loads(await watching.stdout.readline())["ok"] is True
        watching.send_signal(signal.SIGINT)
        await watching.communicate()
    assert watching.returncode == 0
