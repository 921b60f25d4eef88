"""A release is made by one script, on a copy of the repository: what it makes, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from scripts import version

ROOT = Path(__file__).parents[2]
NUMBER = version.current()


def git(folder: Path, *arguments: str) -> str:
    author = ("-c", "user.name=release", "-c", "user.email=release@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *author, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of this tree as they are now, committed; without models and recordings, which no distribution has."""
    copy = tmp_path_factory.mktemp("release") / "tree"
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in filter(None, listed):
        if not name.startswith(("tests/", "samples/", "training/")) and (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    git(copy, "init", "-q")
    git(copy, "add", "-A")
    git(copy, "commit", "-q", "-m", "The tree")
    return copy


@pytest.fixture
def tree(template: Path, tmp_path: Path) -> Path:
    git(tmp_path, "clone", "-q", str(template), "tree")
    return tmp_path / "tree"


def release(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts.release", *arguments]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tree.parent), "PYTHONPATH": str(tree)}
    for role in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{role}_NAME": "release", f"GIT_{role}_EMAIL": "release@example.org"}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


def dated(tree: Path) -> None:
    page = tree / "CHANGELOG.md"
    page.write_text(page.read_text().replace(" (not released yet)", " (2026-12-01)"))
    git(tree, "commit", "-qam", "Date the release")


def test_a_dry_run_makes_all_files_and_no_tag(tree: Path) -> None:
    done = release(tree)
    assert done.returncode == 0, done.stderr
    made = {path.name for path in (tree / "dist").iterdir()}
    built = {
        f"{name}-{NUMBER}{end}" for name in ("hedgerow", "hedgerow_mesh") for end in (".tar.gz", "-py3-none-any.whl")
    }
    assert made == built | {f"hedgerow-{NUMBER}.tgz", "images.txt", "sbom.cdx.json", "SHA256SUMS"}
    lines = done.stdout.splitlines()
    assert {line.split()[1].rstrip(":") for line in lines if line.startswith("made ")} == {
        f"dist/{name}" for name in made
    }
    assert f"not made: the tag v{NUMBER} (--no-dry-run makes it)" in lines
    assert not git(tree, "tag")
    sums = dict(reversed(line.split()) for line in (tree / "dist/SHA256SUMS").read_text().splitlines())
    assert sums.keys() == made - {"SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((tree / "dist" / name).read_bytes()).hexdigest() == digest


def test_release_files_have_the_version(tree: Path) -> None:
    dated(tree)
    assert release(tree, "--no-dry-run").returncode == 0
    dist = tree / "dist"
    for name in ("hedgerow", "hedgerow_mesh"):
        with zipfile.ZipFile(dist / f"{name}-{NUMBER}-py3-none-any.whl") as wheel:
            metadata = wheel.read(f"{name}-{NUMBER}.dist-info/METADATA").decode()
        assert f"Version: {NUMBER}\n" in metadata
        assert f"Requires-Dist: {'hedgerow-mesh[proxy]' if name == 'hedgerow' else 'hedgerow'}=={NUMBER}" in metadata
    with tarfile.open(dist / f"hedgerow-{NUMBER}.tgz") as chart:
        file = chart.extractfile("hedgerow/Chart.yaml")
        assert file
        assert f"version: {NUMBER}" in file.read().decode()
    assert f"hedgerow/gateway:{NUMBER}" in (dist / "images.txt").read_text().splitlines()
    assert json.loads((dist / "sbom.cdx.json").read_text())["metadata"]["component"]["version"] == NUMBER
    assert git(tree, "cat-file", "-t", f"v{NUMBER}").strip() == "tag"
    again = release(tree)
    assert (again.returncode, again.stderr) == (1, f"release: the tag v{NUMBER} exists: a version is released once\n")


def test_a_tree_with_changes_is_refused(tree: Path) -> None:
    (tree / "README.md").write_text("changed")
    done = release(tree)
    assert done.returncode == 1
    assert "release: the tree has changes that are not committed:\nM README.md" in done.stderr
    assert not (tree / "dist").exists()


def test_a_version_without_a_section_of_the_changelog_is_refused(tree: Path) -> None:
    version.write("9.8.7", tree)
    git(tree, "commit", "-qam", "Another version")
    assert release(tree).stderr == "release: CHANGELOG.md: a section `## 9.8.7` is needed\n"


def test_a_tag_needs_a_date_in_the_changelog(tree: Path) -> None:
    page = tree / "CHANGELOG.md"
    page.write_text(page.read_text().replace(f"## {NUMBER}", f"## {NUMBER} (not released yet)\n\n## Before", 1))
    git(tree, "commit", "-qam", "Without a date")
    assert "a date is needed in place of `not released yet`" in release(tree, "--no-dry-run").stderr


def test_every_file_names_the_same_version() -> None:
    found = list(version.written())
    assert {path for path, _ in found} == set(version.PLACES)
    assert {number for _, number in found} == {NUMBER}


def test_a_text_that_is_no_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"version: like 0\.3\.0, got 1"):
        version.write("1", tmp_path)
