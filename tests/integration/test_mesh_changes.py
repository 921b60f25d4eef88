"""A running mesh whose services change: one more, others in their place, fewer. The services are scripted."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.mesh import RUNNING_FILE, Mesh, PortInUse
from launcher.processes import ServiceFailed, ServiceSpec, check_health
from tests.integration.test_supervision import Changes, _forked, scripted  # noqa: F401


def failing(spec: ServiceSpec) -> ServiceSpec:
    return replace(spec, environment={**spec.environment, "SCRIPTED_EXIT_CODE": "3"})


def listed(state_dir: Path) -> list[str]:
    return [each["name"] for each in json.loads((state_dir / RUNNING_FILE).read_text())["services"]]


async def test_an_added_service_is_started_supervised_and_stopped_after_the_front(tmp_path: Path) -> None:
    changes, (back, front, more) = Changes(), scripted("back", "front", "more")
    async with Mesh([back, front], tmp_path, changes) as mesh:
        await mesh.put(more)
        assert await check_health(more.address, 20) == "SERVING"
        assert listed(tmp_path) == ["back", "more", "front"]
        (running,) = [service.process for service in mesh.services if service.spec == more]
        assert running
        os.kill(running.pid, signal.SIGKILL)
        await changes.reach("serving", 4)
    assert changes.of("stopped")[0] == "front"
    assert await check_health(more.address, 0.5) == "UNREACHABLE"


async def test_a_service_is_replaced_by_one_of_its_name_on_the_same_port(tmp_path: Path) -> None:
    changes, specs = Changes(), scripted("back", "front")
    async with Mesh(specs, tmp_path, changes) as mesh:
        for spec in specs:  # the front stays the front
            await mesh.put(replace(spec, environment={**spec.environment, "SCRIPTED_NEW": "1"}))
        assert [await check_health(spec.address, 20) for spec in specs] == ["SERVING"] * 2
        assert all("SCRIPTED_NEW" in service.spec.environment for service in mesh.services)
        assert changes.of("stopped") == ["back", "front"]
        assert changes.of("died") == []
    assert changes.of("stopped")[2:] == ["front", "back"]


async def test_a_removed_service_is_stopped_and_not_restarted(tmp_path: Path) -> None:
    changes, specs = Changes(), scripted("back", "front")
    async with Mesh(specs, tmp_path, changes) as mesh:
        await mesh.remove("back")
        await mesh.remove("nobody")
        assert await check_health(specs[0].address, 0.5) == "UNREACHABLE"
        assert listed(tmp_path) == ["front"]
    assert changes.of("died") == []


async def test_a_service_that_does_not_start_is_left_out_and_others_stay(tmp_path: Path) -> None:
    back, front, busy = scripted("back", "front", "busy")
    async with Mesh([back, front], tmp_path) as mesh:
        with pytest.raises(ServiceFailed, match="scripted to fail"):
            await mesh.put(failing(back))
        with pytest.raises(PortInUse):
            await mesh.put(replace(busy, address=front.address))
        assert listed(tmp_path) == ["front"]
        await mesh.put(back)
        assert await check_health(back.address, 20) == "SERVING"


async def test_with_insist_a_failing_service_is_restarted(tmp_path: Path) -> None:
    changes, (back, front) = Changes(), scripted("back", "front")
    async with Mesh([back, front], tmp_path, changes) as mesh:
        await mesh.put(failing(back), insist=True)
        await changes.reach("died", 3)
        assert len(mesh.services) == 2
        await mesh.put(back)
        assert await check_health(back.address, 20) == "SERVING"


async def test_with_insist_a_service_starts_once_its_log_can_be_opened(tmp_path: Path) -> None:
    changes, (back, front) = Changes(), scripted("back", "front")
    async with Mesh([back, front], tmp_path, changes) as mesh:
        log = tmp_path / "logs" / "back.log"
        log.unlink()
        log.mkdir()
        await mesh.put(back, insist=True)
        await changes.reach("died", 1)
        assert "back cannot be started" in changes.seen[-1].detail
        assert await check_health(front.address, 20) == "SERVING"
        log.rmdir()
        await changes.reach("serving", 3)
        assert await check_health(back.address, 20) == "SERVING"


async def test_a_removal_without_a_writable_list_ends_no_service(tmp_path: Path) -> None:
    back, front = scripted("back", "front")
    async with Mesh([back, front], tmp_path) as mesh:
        (tmp_path / f"{RUNNING_FILE}.new").mkdir()
        await mesh.remove("back")
        assert [service.spec.name for service in mesh.services] == ["front"]
        assert await check_health(front.address, 20) == "SERVING"
