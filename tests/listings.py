"""State folders as meshes have them while they run, without a mesh."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


def list_services(folder: Path, services: Sequence[Mapping[str, object]]) -> None:
    """Write the listing that a mesh leaves behind when it is killed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "running.json").write_text(json.dumps({"services": services}))


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The folder is a running mesh's meanwhile."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(opened)


@contextmanager
def running(folder: Path, services: Sequence[Mapping[str, object]]) -> Iterator[None]:
    """A mesh of these services runs from the folder meanwhile."""
    list_services(folder, services)
    with held(folder):
        yield
