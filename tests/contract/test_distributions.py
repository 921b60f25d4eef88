"""`hedgerow` is the SDK and nothing else; each of its extras brings `hedgerow-mesh`, in the same version."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import EntryPoint, EntryPoints, PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

from hedgerow import __main__ as command
from tests.contract.test_images import DISTRIBUTIONS, REPOSITORY

SDK, MESH = DISTRIBUTIONS["hedgerow"], DISTRIBUTIONS["hedgerow-mesh"]
PACKAGES = {"hedgerow": {"hedgerow"}, "hedgerow-mesh": {"hedgerow_cli", "launcher", "services"}}


def built(folder: Path, target: str, into: Path) -> Path:
    """The wheel or source archive of the project in `folder`."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(into)]
    subprocess.run(build, cwd=folder, check=True, capture_output=True)
    (made,) = into.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return made


def shipped(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.mark.parametrize(("name", "folder"), [("hedgerow", "hedgerow"), ("hedgerow-mesh", ".")])
def test_a_wheel_has_all_files_of_its_packages_and_no_others(name: str, folder: str, tmp_path: Path) -> None:
    files = {path for package in PACKAGES[name] for path in (REPOSITORY / package).rglob("*") if path.is_file()}
    expected = {
        path.relative_to(REPOSITORY).as_posix()
        for path in files
        if path.suffix != ".pyc" and (name != "hedgerow" or path.suffix in (".py", ".pyi", ".typed"))
    }
    assert shipped(built(REPOSITORY / folder, "wheel", tmp_path / "wheel")) == expected
    with tarfile.open(built(REPOSITORY / folder, "sdist", tmp_path / "source")) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert shipped(built(unpacked, "wheel", tmp_path / "again")) == expected


def test_the_sdk_has_the_licence_of_the_whole() -> None:
    assert (REPOSITORY / "hedgerow/LICENSE").read_bytes() == (REPOSITORY / "LICENSE").read_bytes()


def test_each_extra_of_the_mesh_is_one_of_the_sdk() -> None:
    version = MESH["version"]
    assert SDK["version"] == version
    assert SDK["optional-dependencies"] == {
        extra: [f"hedgerow-mesh[{extra}]=={version}"] for extra in MESH["optional-dependencies"] if extra != "dev"
    }


def test_the_mesh_names_the_sdk_and_the_packages_that_both_import() -> None:
    """Images install the mesh's packages before the SDK is built."""
    assert MESH["dependencies"] == [f"hedgerow=={SDK['version']}", *SDK["dependencies"]]


def test_the_sdk_brings_one_command_and_no_plugin() -> None:
    assert SDK["scripts"] == {"hedgerow": "hedgerow.__main__:main"}
    assert "entry-points" not in SDK
    assert "scripts" not in MESH


def test_the_command_runs_the_command_line_of_the_mesh(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    points = EntryPoints(
        EntryPoint(name, value, group) for group, named in MESH["entry-points"].items() for name, value in named.items()
    )
    monkeypatch.setattr(command, "distribution", {"hedgerow-mesh": SimpleNamespace(entry_points=points)}.__getitem__)
    monkeypatch.setattr(sys, "argv", ["hedgerow", "certs", "--help"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 0
    assert "Usage: hedgerow certs" in capsys.readouterr().out


@pytest.mark.parametrize(("given", "extra"), [("up", "proxy"), ("demo", "demo"), ("ask", "cli"), ("", "cli")])
def test_without_the_mesh_the_command_says_what_to_install(
    given: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(command, "distribution", missing)
    monkeypatch.setattr(sys, "argv", ["hedgerow", *given.split()])
    with pytest.raises(SystemExit, match=rf"install it with: pip install 'hedgerow\[{extra}\]'"):
        command.main()


def test_ctrl_c_while_the_command_line_is_imported_leaves_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "distribution", interrupted)
    monkeypatch.setattr(sys, "argv", ["hedgerow", "up"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 130
