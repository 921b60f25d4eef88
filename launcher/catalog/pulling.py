"""Pull and remove models."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from launcher.catalog.errors import CatalogError, ConversionFailed, Damaged
from launcher.catalog.placing import forget_downloads, locked, place
from launcher.catalog.records import CatalogEntry, entry
from launcher.catalog.steps import Report, Step, ignore
from launcher.catalog.store import cache_folder, damage, home, is_whole, offered_folder, partial_folder


def pull(
    names: Sequence[str],
    progress: Report = ignore,
    *,
    given: Path | None = None,
    form: str = "",
    read_files: bool = False,
) -> dict[str, Path]:
    """Get the models that are missing; where each is. Blocks; Ctrl-C leaves nothing but downloads to be resumed.

    `given` is a folder with their files; nothing is downloaded then. `form` is one of the entry's formats. With
    `read_files` the files of models that are there are hashed, and a model with a damaged file is made again; without,
    their sizes are compared. Raises `CatalogError`.
    """
    wanted = [entry(name) for name in dict.fromkeys(names)]
    for each in wanted:
        _refuse_format(each, form)
    placed = [each for each in wanted if _pull(each, progress, given, form, read_files)]
    if placed:
        with locked(placed[0].name, ignore):  # the models are there: a wait for this is not worth a line
            for each in placed:
                forget_downloads(each)
    return {each.name: home(each.name) for each in wanted}


def remove(name: str, progress: Report = ignore) -> list[Path]:
    """Remove a model and its downloads. Returns the removed folders. Raises `UnknownModel`."""
    wanted = entry(name)
    with locked(name, progress):
        found = [folder for folder in (cache_folder() / name, partial_folder() / name) if folder.exists()]
        for folder in found:
            shutil.rmtree(folder)
        forget_downloads(wanted)
    return found


def missing(names: Sequence[str]) -> list[CatalogEntry]:
    """The models that are not on this machine. Raises `UnknownModel`."""
    wanted = [entry(name) for name in dict.fromkeys(names)]
    return [each for each in wanted if not is_whole(each, home(each.name))]


def _pull(wanted: CatalogEntry, progress: Report, given: Path | None, form: str, read_files: bool) -> bool:
    """Whether it had to be placed."""
    if _is_there(wanted, form, read_files, progress):
        return False
    with locked(wanted.name, progress):
        if _is_there(wanted, form, read_files, progress):  # the process that we waited for placed it
            return False
        _refuse_missing_modules(wanted)
        place(wanted, progress, given, form or next(iter(wanted.formats), ""))
        return True


def _is_there(wanted: CatalogEntry, form: str, read_files: bool, progress: Report) -> bool:
    folder = home(wanted.name)
    if not is_whole(wanted, folder, form):
        return False
    if damaged := damage(folder) if read_files else {}:
        if folder == offered_folder(wanted.name):
            raise Damaged(f"{folder}: {', '.join(damaged)} is damaged; it is not ours to repair: copy it again")
        progress(Step(wanted.name, "note", f"{', '.join(damaged)} is damaged; the model is made again"))
        return False
    progress(Step(wanted.name, "present", str(folder)))
    return True


def _refuse_missing_modules(wanted: CatalogEntry) -> None:
    """Before anything is downloaded."""
    if missing := [name for name in wanted.needs if not find_spec(name)]:
        raise ConversionFailed(
            f"{wanted.name} is converted once, which needs {', '.join(missing)}; install it with: "
            "pip install 'hedgerow[models]'"
        )


def _refuse_format(wanted: CatalogEntry, form: str) -> None:
    if form and form not in wanted.formats:
        has = ", ".join(wanted.formats) or "one format alone"
        raise CatalogError(f"{wanted.name} cannot be made as {form}: it has {has}")
