"""Only the owner may read files of services and of `hedgerow up`, whatever the shell's umask."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.mesh import Mesh
from launcher.processes import ServiceSpec, check_health, free_port
from services.cache.database import Database
from tests.conftest import Start
from tests.waiting import until


@pytest.fixture(autouse=True)
def _a_careless_shell() -> Iterator[None]:
    """A shell with umask 0 and core dumps."""
    umask, (soft, hard) = os.umask(0), resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    yield
    os.umask(umask)
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


def open_to_others(folder: Path) -> dict[str, str]:
    """The paths below the folder on which other users have any permission."""
    modes = {str(path.relative_to(folder)): path.stat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))}
    return {name: oct(mode) for name, mode in modes.items() if mode & 0o077}


async def test_the_caches_file_and_folders_are_its_owners(tmp_path: Path) -> None:
    address, state = f"127.0.0.1:{free_port()}", tmp_path / "state"
    own = {"HEDGEROW_CACHE_ADDRESS": address, "HEDGEROW_CACHE_DATABASE": str(state / "in" / "cache.db")}
    environment = {**os.environ, **own, "HOME": str(state)}  # where the converted model is kept
    # Not as `hedgerow up` starts it, which has an umask for what is not ours.
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "services.cache", env=environment)
    try:
        await until(lambda: _serves(address), 60)
        assert sorted(path.name for path in (state / "in").iterdir()) == ["cache.db", "cache.db-wal"]
        assert open_to_others(state) == {}
        assert _limit(process.pid, "Max core file size") == "0"
    finally:
        process.terminate()
        await process.wait()


async def test_a_database_that_others_could_read_is_made_private(
    start: Start, tmp_path: Path, model_cache: Path
) -> None:
    file = tmp_path / "cache.db"
    Database(str(file)).close()
    file.chmod(0o644)
    process = await start("cache", database=str(file), model_cache=str(model_cache))
    assert file.stat().st_mode & 0o777 == 0o600
    assert f"{file} could be read by others: it is its owner's alone from now on" in process.log.read_text()


async def test_the_state_folder_of_a_mesh_is_its_owners(tmp_path: Path) -> None:
    (state := tmp_path / "state").mkdir()
    address = f"127.0.0.1:{free_port()}"
    spec = ServiceSpec("scripted", "tests.integration.scripted_service", address, {"SCRIPTED_ADDRESS": address})
    async with Mesh([spec], state):
        assert (state / "logs" / "scripted.log").exists()
        assert open_to_others(state) == {}


async def _serves(address: str) -> bool:
    return await check_health(address, 1) == "SERVING"


def _limit(pid: int, name: str) -> str:
    """The soft one."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return next(line for line in lines if line.startswith(name)).removeprefix(name).split()[0]
