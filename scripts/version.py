"""The version of a release: `python -m scripts.version` prints it, `python -m scripts.version 0.3.0` changes it.

It is written in the SDK's `pyproject.toml`. The files below repeat it, because what reads them reads no other file; a
contract test holds them together.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SDK = "hedgerow/pyproject.toml"
_IMAGE = r"image: hedgerow/[a-z-]+:"
# By path, the texts that a version follows.
PLACES: Mapping[str, str] = {
    _SDK: r'^version = "|"hedgerow-mesh(?:\[[a-z-]+\])?==',
    "pyproject.toml": r'^version = "|"hedgerow==',
    "deploy/helm/hedgerow/Chart.yaml": r'^version: |^appVersion: "',
    "docker-compose.yml": _IMAGE,
    "docker-compose.mesh.yml": _IMAGE,
    "docker-compose.gpu.yml": _IMAGE,
    "docs/kubernetes.md": r"REGISTRY/gateway:",
    "docs/openapi.yaml": r"^  version: ",
    "launcher/meshfile/containers.py": r'^VERSION = "',
}
_NUMBER = r"\d+\.\d+\.\d+"  # for a pre-release PEP 440 and the chart's SemVer have different words


def current(root: Path = ROOT) -> str:
    """The version of the tree."""
    return str(tomllib.loads((root / _SDK).read_text())["project"]["version"])


def written(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """(path, version) for each time that a file has one."""
    for path, before in PLACES.items():
        for found in _pattern(before).finditer((root / path).read_text()):
            yield path, found[2]


def write(version: str, root: Path = ROOT) -> None:
    """Give every file this version. Raises ValueError for a text that is none."""
    if not re.fullmatch(_NUMBER, version):
        raise ValueError(f"version: like 0.3.0, got {version}")
    for path, before in PLACES.items():
        text = (root / path).read_text()
        (root / path).write_text(_pattern(before).sub(lambda found: found[1] + version, text))


def _pattern(before: str) -> re.Pattern[str]:
    return re.compile(f"({before})({_NUMBER})", re.MULTILINE)


def main(arguments: Sequence[str]) -> None:
    if arguments:
        try:
            write(arguments[0])
        except ValueError as problem:
            sys.exit(str(problem))
    print(current())


if __name__ == "__main__":
    main(sys.argv[1:])
