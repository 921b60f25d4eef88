"""The folders of models on this machine, each with a manifest."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from launcher.catalog.errors import NotPulled
from launcher.catalog.hashing import sha256_of
from launcher.catalog.records import CatalogEntry, entry

MANIFEST = "hedgerow-model.json"
CACHE_VARIABLE = "HEDGEROW_MODELS_CACHE"
FOLDER_VARIABLE = "HEDGEROW_MODELS_DIR"
_PARTIAL = ".partial"


@dataclass(frozen=True)
class File:
    """One file of a placed model."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class PlacedManifest:
    """The manifest of a placed folder."""

    name: str
    version: int
    licence: str
    origin: str
    source: str  # where its files came from: a hub's repository with its revision, or wheels
    files: Mapping[str, File]
    format: str = ""

    def write(self, folder: Path) -> None:
        """Write the manifest into the folder."""
        (folder / MANIFEST).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def cache_folder() -> Path:
    """The folder of all models: $HEDGEROW_MODELS_CACHE, else hedgerow/models in the user's cache folder."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "hedgerow" / "models"


def partial_folder() -> Path:
    """The folder of incomplete downloads, which can be resumed."""
    return cache_folder() / _PARTIAL


def offered_folder(name: str) -> Path | None:
    """The model's folder in $HEDGEROW_MODELS_DIR, if it exists."""
    offered = os.environ.get(FOLDER_VARIABLE)
    folder = Path(offered).expanduser().absolute() / name if offered else None
    return folder if folder and folder.is_dir() else None


def home(name: str) -> Path:
    """The model's folder, whether or not it has been pulled. Raises `UnknownModel`."""
    found = entry(name)
    offered = offered_folder(name)
    return offered if offered and is_whole(found, offered) else cache_folder() / name


def path(name: str) -> Path:
    """The folder of a pulled model. Raises `UnknownModel` and `NotPulled`."""
    folder = home(name)
    if not is_whole(entry(name), folder):
        raise NotPulled(f"{name} is not on this machine; get it with: hedgerow models pull {name}")
    return folder


def is_whole(wanted: CatalogEntry, folder: Path, form: str = "") -> bool:
    """Whether all files of the model exist with the right size. `damage` checks their contents."""
    said = read_manifest(folder)
    if said is None or said.name != wanted.name or said.version != wanted.version or form not in ("", said.format):
        return False
    return all(_bytes(folder / name) == file.bytes for name, file in said.files.items())


def damage(folder: Path) -> dict[str, tuple[str, str]]:
    """The files that differ from the manifest: (expected SHA-256, actual SHA-256; empty: the file is missing)."""
    said = read_manifest(folder)
    if said is None:
        return {MANIFEST: ("a manifest", "")}
    found = {name: _sha256(folder / name) for name in said.files}
    return {name: (file.sha256, found[name]) for name, file in said.files.items() if found[name] != file.sha256}


def described(folder: Path) -> dict[str, File]:
    """Every file of a folder that is to be placed."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {str(path.relative_to(folder)): File(sha256_of(path), path.stat().st_size) for path in files}


def read_manifest(folder: Path) -> PlacedManifest | None:
    """The folder's manifest; None if it is missing or invalid."""
    try:
        said = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = {name: File(**file) for name, file in said.pop("files").items()}
        return PlacedManifest(files=files, **said)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _sha256(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError:
        return ""
