"""Creates a model in a temporary folder beside its final folder, and renames that."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launcher.catalog import children
from launcher.catalog.errors import ConversionFailed, Damaged
from launcher.catalog.records import CatalogEntry, ModelSource
from launcher.catalog.sources import gather, hub_folder, wheel_folder
from launcher.catalog.steps import Report, Step
from launcher.catalog.store import PlacedManifest, cache_folder, described, partial_folder


@contextmanager
def locked(model: str, report: Report) -> Iterator[None]:
    """Hold the lock on the models' folder; other processes wait. The kernel releases it when a process ends."""
    partial_folder().mkdir(parents=True, exist_ok=True)
    with (partial_folder() / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            who = f" ({pid})" if (pid := file.read()) else ""
            report(Step(model, "waiting", f"another process{who} is changing the models"))
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"pid {os.getpid()}")
        file.flush()
        yield


def place(entry: CatalogEntry, report: Report, given: Path | None = None, form: str = "") -> Path:
    """Download, convert, check and place a model. Call it inside `locked`. Raises `Unavailable`, `Damaged`,
    `ConversionFailed`."""
    work = partial_folder() / entry.name
    shutil.rmtree(work, ignore_errors=True)  # of a process that was killed
    try:
        source, origin = gather(entry, work / "raw", report, given)
        made = _converted(entry, source, work, report, form)
        _check(source, made)
        manifest = PlacedManifest(entry.name, entry.version, entry.licence, entry.origin, origin, described(made), form)
        manifest.write(made)
        _move(made, cache_folder() / entry.name, work / "old")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    report(Step(entry.name, "placed", str(cache_folder() / entry.name)))
    return cache_folder() / entry.name


def forget_downloads(entry: CatalogEntry) -> None:
    """Remove incomplete downloads."""
    for source in entry.sources:
        for package in source.packages:
            (wheel_folder() / package.wheel).unlink(missing_ok=True)
        if source.hub:
            shutil.rmtree(hub_folder(source), ignore_errors=True)


def _converted(entry: CatalogEntry, source: ModelSource, work: Path, report: Report, form: str) -> Path:
    """The folder that the recipe made, in a child process: what it imports is large, and Ctrl-C must end it."""
    report(Step(entry.name, "converting"))
    made = work / "model"
    made.mkdir()
    command = [sys.executable, "-m", "launcher.catalog.convert", source.recipe, str(work / "raw"), str(made)]
    code, said = children.run([*command, *([form] if form else [])], environment={"HF_HUB_OFFLINE": "1"})
    _readable(made)
    if code:
        last = (said.splitlines() or [f"exit code {code}"])[-1]
        raise ConversionFailed(f"{entry.name} could not be converted: {last[:300]}")
    return made


def _readable(folder: Path) -> None:
    """Readable for all users, as containers with a user of their own need it: public models hide nothing."""
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    folder.chmod(0o755)


def _check(source: ModelSource, made: Path) -> None:
    """Raises `Damaged` where a file that comes out the same everywhere did not."""
    files = described(made)
    for name, expected in source.made.items():
        found = files[name].sha256 if name in files else "no such file"
        if found != expected:
            raise Damaged(f"{name}, as converted: SHA-256 {expected} expected, got {found}")


def _move(made: Path, home: Path, old: Path) -> None:
    """`made` to `home`; an old folder is moved away first, since a folder that is not empty cannot be replaced."""
    if home.exists():
        os.rename(home, old)
    os.rename(made, home)
