"""What `pip install hedgerow` gives an application: the SDK and the stubs, with gRPC and protobuf and nothing else.

The package is copied without its commands, and a Python of its own refuses every module that is neither the standard
library's nor a base dependency's.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.contract.test_images import REPOSITORY, installed_by

# Dependencies of the services, the commands and the launcher.
_NOT_FOR_CLIENTS = ("grpc_health", "grpc_reflection", "numpy", "typer", "rich", "launcher", "services")

_REFUSING = """
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in ALLOWED and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"no module {name!r} for an application", name=name)

sys.meta_path.insert(0, Refusing())
sys.path.insert(0, FOLDER)
import hedgerow
assert hedgerow.__file__.startswith(FOLDER), hedgerow.__file__
"""

_CLIENTS = """
for make in (hedgerow.Client, hedgerow.VisionClient, hedgerow.AudioClient):
    with make("127.0.0.1:1") as client:
        pass

with hedgerow.Client("127.0.0.1:1") as client:
    try:
        client.ask("Is anybody there?", budget_ms=100)
    except hedgerow.HedgerowError as error:
        print(error.reason)

import asyncio

async def ask():
    async with hedgerow.AsyncClient("127.0.0.1:1") as client:
        try:
            await client.ask("Is anybody there?", budget_ms=100)
        except hedgerow.HedgerowError as error:
            print(error.reason)

asyncio.run(ask())
hedgerow.AsyncVisionClient(), hedgerow.AsyncAudioClient()
"""

_STUBS = """
from importlib import import_module
from pathlib import Path

for path in sorted(Path(FOLDER).rglob("*_pb2*.py")):
    import_module(".".join(path.relative_to(FOLDER).with_suffix("").parts))
    print(path.stem)
"""

_COMMAND = """
from hedgerow_cli import main
main()
"""


def allowed() -> set[str]:
    """The top-level modules of the base dependencies, and of what they need."""
    brought = installed_by("")
    return {top for top, names in packages_distributions().items() if {canonicalize_name(n) for n in names} & brought}


def as_an_application(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run it where only the base dependencies can be imported."""
    known = f"FOLDER, ALLOWED = {str(folder)!r}, {sorted(allowed() | {'hedgerow', 'hedgerow_cli'})!r}\n"
    command = [sys.executable, "-I", "-c", known + _REFUSING + program]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("application")
    shutil.copytree(REPOSITORY / "hedgerow", folder / "hedgerow", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_base_dependencies_bring_none_of_the_mesh() -> None:
    assert allowed().isdisjoint(_NOT_FOR_CLIENTS)


def test_clients_work_with_the_base_dependencies_alone(sdk: Path) -> None:
    done = as_an_application(sdk, _CLIENTS)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["NO_GATEWAY", "NO_GATEWAY"]


def test_every_stub_loads_with_the_base_dependencies_alone(sdk: Path) -> None:
    done = as_an_application(sdk, _STUBS)
    assert (done.returncode, done.stderr) == (0, "")
    assert {"gateway_pb2_grpc", "vision_pb2_grpc", "audio_pb2_grpc", "control_pb2"} <= set(done.stdout.split())


def test_a_package_beyond_the_base_dependencies_is_refused(sdk: Path) -> None:
    """The test above would notice."""
    assert "no module 'numpy' for an application" in as_an_application(sdk, "import numpy").stderr


def test_without_its_packages_the_command_line_says_what_to_install(tmp_path: Path) -> None:
    for package in ("hedgerow", "hedgerow_cli"):
        shutil.copytree(REPOSITORY / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    done = as_an_application(tmp_path, _COMMAND)
    assert done.returncode == 1
    assert done.stderr == "hedgerow: typer is not installed; install it with: pip install 'hedgerow[cli]'\n"
