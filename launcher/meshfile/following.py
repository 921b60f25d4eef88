"""Brings a running mesh to what its file says, whenever that has changed.

A change costs as little as it can: tenants are written to the file that the gateway follows, and of the services those
alone are started again whose settings are others now, one after the other, replicas of one model too. A file that
cannot be used changes nothing, and where a service does not start with its new settings the mesh goes back. A later
change waits meanwhile, unless it is one of tenants alone: a key that is revoked must not wait for a model that loads.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from launcher.catalog import CatalogError
from launcher.mesh import Mesh, MeshError
from launcher.meshfile.catalog import missing_models, pull_meanwhile
from launcher.meshfile.planning import MeshPlan, replanned
from launcher.meshfile.problems import BadMeshFile
from launcher.processes import ServiceFailed, ServiceSpec

_LOOK_S, _REMIND_S = 0.2, 10.0
Report = Callable[[str], None]


async def follow(path: Path, state_dir: Path, mesh: Mesh, current: MeshPlan, report: Report) -> None:
    """Follow the file until cancelled. `report` gets lines about changes and refused files."""

    def try_report(line: str) -> None:
        with contextlib.suppress(OSError):  # a terminal that is gone
            report(line)

    async with contextlib.aclosing(_changes(path, current.text)) as changes:
        async for _ in changes:
            try:
                wanted = await _wanted(path, state_dir, current, try_report)
            except (BadMeshFile, MeshError, CatalogError, OSError) as error:  # OSError: no process to check it with
                try_report(f"{error}\n{path} is refused; the mesh stays as it was")
                continue
            if await _bring(path, mesh, current, wanted, state_dir, try_report):
                current = wanted


async def _wanted(path: Path, state_dir: Path, current: MeshPlan, report: Report) -> MeshPlan:
    """The plan of the current file, after its models of the catalogue have been pulled. The mesh serves meanwhile."""
    wanted = await replanned(path, state_dir, current)
    if missing := missing_models(wanted.file):
        await pull_meanwhile(missing, report)
        return await replanned(path, state_dir, current)  # what a model says of itself counts
    return wanted


async def _bring(path: Path, mesh: Mesh, current: MeshPlan, wanted: MeshPlan, state_dir: Path, report: Report) -> bool:
    """Change the mesh, or restore it if that fails. Returns whether it was changed."""
    try:
        wanted.write_files(state_dir)
        reminding = _remind(path, _changed(current.specs, wanted.specs), report)
        async with _beside(reminding), _beside(_follow_tenants(path, state_dir, wanted, report)):
            done = await bring(mesh, wanted.specs)
    except (MeshError, ServiceFailed, ValueError, OSError) as error:
        report(f"{error}\n{path} is not followed; the mesh goes back to what it was")
        with contextlib.suppress(ValueError, OSError):  # a key that is gone by now: the tenants stay as they are
            current.write_files(state_dir)
        async with _beside(_follow_tenants(path, state_dir, wanted, report)):
            await bring(mesh, current.specs, insist=True)
        return False
    report(f"{path} is in force: {', '.join(done) or 'nothing had to start again'}")
    return True


@asynccontextmanager
async def _beside(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Do `work` meanwhile, until the end of the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _remind(path: Path, names: Sequence[str], report: Report) -> None:
    """Report repeatedly that services are still starting."""
    for count in itertools.count(1):
        await asyncio.sleep(_REMIND_S)
        after_s = count * _REMIND_S
        report(f"{path} is not in force after {after_s:.0f} s: {', '.join(names)} starting; a later change waits")


async def _follow_tenants(path: Path, state_dir: Path, wanted: MeshPlan, report: Report) -> None:
    """Write the tenants of the file for the gateway each time that they alone are others than those of `wanted`."""
    async with contextlib.aclosing(_changes(path, wanted.text)) as changes:
        async for _ in changes:
            with contextlib.suppress(BadMeshFile, MeshError, ValueError, OSError):  # reported when its turn has come
                later = await replanned(path, state_dir, wanted)
                if later.specs == wanted.specs:
                    later.write_files(state_dir)
                    report(f"the tenants of {path} are in force")


async def bring(mesh: Mesh, wanted: Sequence[ServiceSpec], *, insist: bool = False) -> list[str]:
    """Start what is new, then start again what has changed, the front last, then stop what is gone. Returns what was
    done. Raises `MeshError` or `ServiceFailed`, and has then done a part of it; unless we `insist` (see `Mesh.put`)."""
    running = {service.spec.name: service.spec for service in mesh.services}
    new = [spec for spec in wanted if spec.name not in running]
    changed = [spec for spec in wanted if spec.name in running and spec != running[spec.name]]
    gone = running.keys() - {spec.name for spec in wanted}
    for spec in (*new, *changed):
        await mesh.put(spec, insist=insist)
    for name in sorted(gone):
        await mesh.remove(name)
    return _done(_services(running.values()), _services(wanted))


def _services(specs: Iterable[ServiceSpec]) -> dict[str, ServiceSpec]:
    """The services by name, without the settings of their process, which it changes as it runs."""
    return {each.name: each.of_the_service if spec.members else each for spec in specs for each in spec.services}


def _changed(before: Sequence[ServiceSpec], after: Sequence[ServiceSpec]) -> list[str]:
    """The services to start or restart."""
    known = _services(before)
    return [name for name, spec in _services(after).items() if known.get(name) != spec]


def _done(before: Mapping[str, ServiceSpec], after: Mapping[str, ServiceSpec]) -> list[str]:
    """The changes of the services, in any process."""
    return [
        *(f"{name} started" for name in after if name not in before),
        *(f"{name} started again" for name in after if name in before and after[name] != before[name]),
        *(f"{name} stopped" for name in sorted(before) if name not in after),
    ]


async def _changes(path: Path, text: str) -> AsyncGenerator[None, None]:
    """Yield each change of the file, once it was the same at two looks, because its writer may not be done."""
    known = seen = text.encode()
    while True:
        await asyncio.sleep(_LOOK_S)
        now = _content(path)
        if now != known and now == seen:
            known = now
            yield
        seen = now


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # between two versions, or gone: `plan` says so
        return b""
