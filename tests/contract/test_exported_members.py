"""The SDK's public surface."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import hedgerow


def test_every_exported_name_is_there() -> None:
    assert [name for name in hedgerow.__all__ if not hasattr(hedgerow, name)] == []


def test_everything_public_in_the_package_is_exported() -> None:
    named = {name for name, value in vars(hedgerow).items() if getattr(value, "__module__", "").startswith("hedgerow.")}
    public = {name for name in named if not name.startswith("_")} | hedgerow._LAZY.keys()
    assert sorted(public - set(hedgerow.__all__)) == []


def test_the_names_are_listed_and_the_version_is_the_packages() -> None:
    assert {*hedgerow.__all__, "__version__"} <= set(dir(hedgerow))
    assert hedgerow.__version__ == version("hedgerow")


def test_every_error_can_be_caught_as_one() -> None:
    errors = [getattr(hedgerow, name) for name in hedgerow.__all__]
    tree = {error.__name__ for error in errors if isinstance(error, type) and issubclass(error, hedgerow.HedgerowError)}
    assert tree == {cls.__name__ for cls in hedgerow.HedgerowError.__subclasses__()} | {"HedgerowError"}


def test_importing_the_package_does_not_load_grpc() -> None:
    """The import of grpc, which loads its health and reflection services where they are installed."""
    probe = (
        "import sys, hedgerow; "
        "unwanted = 'grpc grpc_health grpc_reflection google.protobuf numpy typer rich launcher services'.split(); "
        "sys.exit(any(name in sys.modules for name in unwanted))"
    )
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


def test_the_sdk_needs_nothing_of_the_services() -> None:
    probe = (
        "import sys, hedgerow; hedgerow.Client; hedgerow.AsyncClient; "
        "hedgerow.VisionClient; hedgerow.AsyncVisionClient; hedgerow.AudioClient; hedgerow.AsyncAudioClient; "
        "unwanted = 'services launcher typer rich pydantic opentelemetry numpy yaml cryptography'.split(); "
        "sys.exit(any(name in sys.modules for name in unwanted))"
    )
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
