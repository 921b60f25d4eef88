"""Pulls models of the catalogue that a mesh file names, also while a mesh runs."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Sequence

from launcher.catalog import CatalogEntry, CatalogError, missing
from launcher.meshfile.schema import MeshFile
from launcher.parent_death_signal import killed_with_parent


def missing_models(file: MeshFile) -> list[CatalogEntry]:
    """The file's models of the catalogue that are not on this machine."""
    named = [model.catalog for model in file.models.values()]
    named += [section.catalog for section in (file.vision, file.audio) if section]
    return missing([name for name in named if name])


async def pull_meanwhile(wanted: Sequence[CatalogEntry], report: Callable[[str], None]) -> None:
    """Pull models in a child process while the mesh runs; `report` gets its lines. Raises `CatalogError`. Cancellation
    ends the child."""
    names = [each.name for each in wanted]
    command = killed_with_parent([sys.executable, "-m", "launcher.catalog", *names])
    child = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT, start_new_session=True)
    try:
        last = await _report_lines(child, report)
    finally:
        if child.returncode is None:
            child.terminate()
        code = await child.wait()
    if code:
        raise CatalogError(last or f"pulling {', '.join(names)} ended with {code}")


async def _report_lines(child: Process, report: Callable[[str], None]) -> str:
    """Report each line once the next one is there; the last one is returned, and reported where there is no error."""
    assert child.stdout
    last = ""
    async for line in child.stdout:
        if last:
            report(last)
        last = line.decode(errors="replace").rstrip()
    if not await child.wait():
        report(last)
    return last
