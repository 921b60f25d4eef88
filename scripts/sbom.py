"""Writes build/sbom.cdx.json: the packages of requirements.lock, as CycloneDX 1.6.

    python -m scripts.sbom [FILE]

Names, versions and hashes are the lock's: the SHA-256 of each file that the package index has of a version, of which an
installation takes one. Licences and dependencies are what the packages that are installed here say of themselves.
"""

from __future__ import annotations

import re
import sys
import tomllib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License, LicenseAcknowledgement
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_ROOT = Path(__file__).parents[1]
LOCK = _ROOT / "requirements.lock"
_SHORT = 100  # characters: a longer `License` is the licence's text


@dataclass(frozen=True)
class Locked:
    """A package of the lock: its canonical name, its version and the SHA-256, in hexadecimal, of each of its files."""

    name: str
    version: str
    sha256: Sequence[str]


def locked(text: str) -> Iterator[Locked]:
    """The packages of a lock. Raises ValueError for a line that is not `name==version --hash=sha256:…`."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            requirement, *hashes = re.split(r"\s+--hash=sha256:", line.strip())
            name, equals, version = requirement.partition("==")
            if not equals or not hashes or not all(re.fullmatch(r"[0-9a-f]{64}", each) for each in hashes):
                raise ValueError(f"requirements.lock: name==version with hashes is needed, got {requirement!r}")
            yield Locked(canonicalize_name(name), version.strip(), hashes)


def sbom(text: str) -> str:
    """The bill of materials of a lock, as JSON. Equal locks have equal serial numbers."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, text))
    root = Component(
        type=ComponentType.APPLICATION, name=project["name"], version=project["version"], bom_ref=project["name"]
    )
    bom.metadata.component = root
    components = {each.name: _component(each) for each in locked(text)}
    bom.components.update(components.values())
    for name, component in components.items():
        bom.register_dependency(component, [components[needed] for needed in _needs(name) if needed in components])
    wanted = {canonicalize_name(Requirement(each).name) for each in _requirements(project)}
    bom.register_dependency(root, [components[name] for name in sorted(wanted & components.keys())])
    return JsonV1Dot6(bom).output_as_string(indent=2)


def _requirements(project: dict[str, Any]) -> Iterator[str]:
    yield from project["dependencies"]
    for extra in project["optional-dependencies"].values():
        yield from extra


def _component(package: Locked) -> Component:
    return Component(
        type=ComponentType.LIBRARY,
        name=package.name,
        version=package.version,
        bom_ref=f"{package.name}=={package.version}",
        purl=PackageURL("pypi", name=package.name, version=package.version),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=each) for each in package.sha256],
        licenses=_licences(package),
    )


def _licences(package: Locked) -> list[License]:
    """The licences that the installed package declares; none where it is not installed or declares none."""
    found = _installed(package.name)
    if not found or found.version != package.version:
        return []
    declared = found.metadata.get_all
    short = [each for each in declared("License") or () if len(each) <= _SHORT and each.strip().upper() != "UNKNOWN"]
    classified = [each.rpartition(" :: ")[2] for each in declared("Classifier") or () if each.startswith("License ::")]
    for named in (declared("License-Expression"), short, classified):
        if named:
            factory = LicenseFactory()
            return [factory.make_from_string(named[0], license_acknowledgement=LicenseAcknowledgement.DECLARED)]
    return []


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _needs(name: str) -> set[str]:
    """The requirements of a package without its extras, by canonical name."""
    found = _installed(name)
    wanted = map(Requirement, (found.requires if found else None) or ())
    return {canonicalize_name(each.name) for each in wanted if not each.marker or each.marker.evaluate({"extra": ""})}


def main(arguments: Sequence[str]) -> None:
    target = Path(arguments[0]) if arguments else _ROOT / "build/sbom.cdx.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    text = LOCK.read_text()
    target.write_text(sbom(text) + "\n")
    print(f"{target}: {len(list(locked(text)))} packages")


if __name__ == "__main__":
    main(sys.argv[1:])
