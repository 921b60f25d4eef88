"""Makes the files of a release in `dist/`, up to the point where it would be published: `make release`.

The tree must be committed, the changelog must have the version, and all files must name it (`scripts/version.py`). Then
`dist/` gets the wheel and the source archive of each distribution, the Helm chart, the names of the images, the SBOM,
and the SHA-256 of each file. A dry run, the default, makes no tag; `--no-dry-run` makes the tag `vX.Y.Z` of the commit.
Nothing is published: the last lines say what remains to be done.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from argparse import ArgumentParser, BooleanOptionalAction, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping
from pathlib import Path

from scripts import sbom, version

ROOT = version.ROOT
DIST = ROOT / "dist"
CHART = "deploy/helm/hedgerow"
_UNRELEASED = "not released yet"
_PACKAGE = "import sys, helm_python\nwith helm_python.Chart.load(sys.argv[1]) as chart: chart.save(sys.argv[2])"
_REMAINS = """to publish:
  git push origin {tag}
  uv publish dist/*.whl dist/*.tar.gz
  for each line of dist/images.txt: docker build, tag and push (deploy/docker/NAME.Dockerfile)
  helm push dist/{chart} oci://REGISTRY
  a release of {tag} with the section of CHANGELOG.md, dist/sbom.cdx.json and dist/SHA256SUMS"""


class NotReady(Exception):
    """The tree cannot be released; the text says why."""


def check(number: str, *, dry_run: bool) -> None:
    """Raise `NotReady` where the tree is not what a release is made of."""
    if changed := _git("status", "--porcelain"):
        raise NotReady(f"the tree has changes that are not committed:\n{changed}")
    if others := sorted({f"{path} has {found}" for path, found in version.written() if found != number}):
        raise NotReady(f"the version is {number}, but {', '.join(others)}: python -m scripts.version {number}")
    heading = re.search(rf"^## {re.escape(number)}(?: .*)?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if heading is None:
        raise NotReady(f"CHANGELOG.md: a section `## {number}` is needed")
    if _UNRELEASED in heading[0] and not dry_run:
        raise NotReady(f"CHANGELOG.md: a date is needed in place of `{_UNRELEASED}`, got `{heading[0]}`")
    if _git("tag", "--list", f"v{number}"):
        raise NotReady(f"the tag v{number} exists: a version is released once")


def make(number: str) -> Iterator[tuple[str, str]]:
    """Make the files; (file, what it is) for each, once it is there."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    yield from _distributions()
    yield _chart(number), "Helm chart"
    (DIST / "images.txt").write_text("".join(f"hedgerow/{name}:{number}\n" for name in images()))
    yield "images.txt", f"names of {len(images())} images"
    (DIST / "sbom.cdx.json").write_text(sbom.sbom(sbom.LOCK.read_text()) + "\n")
    yield "sbom.cdx.json", "bill of materials of requirements.lock (CycloneDX)"
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(DIST.iterdir())}
    (DIST / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))
    yield "SHA256SUMS", f"SHA-256 of {len(sums)} files"


def images() -> list[str]:
    """The names of the images that the tree builds."""
    return sorted(path.stem for path in (ROOT / "deploy/docker").glob("*.Dockerfile"))


def _distributions() -> Iterator[tuple[str, str]]:
    """One wheel and one source archive for each `pyproject.toml` of a project. Equal commits make equal files."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": _git("log", "-1", "--format=%ct")}
    for found in _git("ls-files", "pyproject.toml", "*/pyproject.toml").splitlines():
        if "project" not in tomllib.loads((ROOT / found).read_text()):
            continue
        before = set(DIST.iterdir())
        command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(DIST))
        _run(*command, folder=(ROOT / found).parent, environment=environment)
        for made in sorted(set(DIST.iterdir()) - before):
            yield made.name, "wheel" if made.suffix == ".whl" else "source archive"


def _chart(number: str) -> str:
    # In a process of its own: the package holds Helm's Go runtime.
    _run(sys.executable, "-c", _PACKAGE, str(ROOT / CHART), str(DIST))
    return f"hedgerow-{number}.tgz"


def _git(*arguments: str) -> str:
    return _run("git", *arguments).strip()


def _run(*command: str, folder: Path = ROOT, environment: Mapping[str, str] | None = None) -> str:
    """The output of a command. Raises `NotReady` with its last words where it fails."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotReady(f"{' '.join(command[:3])} failed:\n{(done.stderr or done.stdout)[-2_000:]}")
    return done.stdout


def main(arguments: list[str]) -> None:
    parser = ArgumentParser(
        "python -m scripts.release", description=__doc__, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("--dry-run", action=BooleanOptionalAction, default=True, help="make no tag (the default)")
    dry_run, number = parser.parse_args(arguments).dry_run, version.current()
    try:
        check(number, dry_run=dry_run)
        for name, kind in make(number):
            print(f"made dist/{name}: {kind}")
        if dry_run:
            print(f"not made: the tag v{number} (--no-dry-run makes it)")
        else:
            _git("tag", "--annotate", f"v{number}", "--message", f"Hedgerow {number}")
            print(f"made the tag v{number} of {_git('rev-parse', '--short', 'HEAD')}")
    except NotReady as problem:
        sys.exit(f"release: {problem}")
    print(_REMAINS.format(tag=f"v{number}", chart=f"hedgerow-{number}.tgz"))


if __name__ == "__main__":
    main(sys.argv[1:])
