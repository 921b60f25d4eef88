"""Follows the topology's file, however it changes: written in place, renamed over, or swapped by a symbolic link some
folders up, as Kubernetes does with a ConfigMap. The file system does not report each of these, so it is read every now
and then as well."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from watchfiles import awatch

from services.control.snapshot import Renderer
from services.control.topology import BadTopology, read

logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it reports every file of the folder


async def follow(file: Path, sds_dir: Path, reread_ms: int) -> AsyncIterator[Renderer | BadTopology]:
    """The topology in the file, or why it cannot be used; first at once, then whenever that has changed."""
    last, said = _contents(file), _read(file, sds_dir)
    yield said
    async with aclosing(_moments(file.parent, reread_ms)) as moments:
        async for _ in moments:
            now, bad = _contents(file, said), isinstance(said, BadTopology)
            if now != last or bad:  # a bad one may name a key file that is good by now
                before, last, said = said, now, _read(file, sds_dir)  # a change between the reads is seen next time
                if not (bad and str(said) == str(before)):
                    yield said


def _contents(file: Path, said: Renderer | BadTopology | None = None) -> tuple[bytes | str, ...]:
    """The contents of the file, and of the key file that it names."""
    files = [file]
    edge = said.topology.edge if isinstance(said, Renderer) else None
    if edge and edge.jwt:
        files.append(edge.jwt.jwks_file)
    return tuple(map(_content, files))


def _content(file: Path) -> bytes | str:
    try:
        return file.read_bytes()
    except OSError as error:
        return str(error)


def _read(file: Path, sds_dir: Path) -> Renderer | BadTopology:
    try:
        return Renderer(read(file), sds_dir)
    except BadTopology as problem:
        return problem


async def _moments(folder: Path, reread_ms: int) -> AsyncGenerator[None, None]:
    """Whenever something happens in the folder, and every `reread_ms`."""
    options: dict[str, Any] = {"rust_timeout": reread_ms, "yield_on_timeout": True, "recursive": False}
    while True:
        try:
            async for _ in awatch(folder, debounce=50, step=20, **options):
                yield
        except (OSError, RuntimeError):  # no such folder now, or the system watches no more of them
            await asyncio.sleep(reread_ms / 1000)
            yield
