"""Files that become documents of a collection, and what came of each."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.progress import Progress

from hedgerow import AsyncCollectionClient, CollectionPut, HedgerowError, InvalidArgument, NotFound, Unavailable
from hedgerow_cli.failures import explain, notify
from hedgerow_cli.terminal import PlainConsole

_ENDINGS = (".md", ".markdown", ".txt")
_AT_ONCE = 4  # documents under way; the service embeds one snippet after the other


@dataclass(slots=True)
class PutCounts:
    """The counts of all documents at one cache service."""

    put: int = 0
    unchanged: int = 0
    removed: int = 0
    snippets: int = 0
    embedded: int = 0
    failed: dict[str, str] = field(default_factory=dict)  # why, by source

    def as_object(self) -> dict[str, Any]:
        """For programs."""
        counts = {name: getattr(self, name) for name in ("put", "unchanged", "removed", "snippets", "embedded")}
        return {**counts, "failed": [{"source": source, "error": why} for source, why in self.failed.items()]}

    def __str__(self) -> str:
        documents = f"{self.put} put, {self.unchanged} unchanged, {self.removed} removed, {len(self.failed)} failed"
        return f"{documents}; {self.embedded} of {self.snippets} snippets embedded"


@dataclass(frozen=True, slots=True)
class Gathered:
    """Files by their sources. `unlisted`: why a folder could not be listed, so that files of it may be missing."""

    files: dict[str, Path] = field(default_factory=dict)
    unlisted: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PutAll:
    """Puts files into the collection `name` of a cache service. With `prune`, what the collection has besides goes,
    unless a folder could not be listed."""

    name: str
    description: str
    prune: bool
    gathered: Gathered

    async def __call__(self, client: AsyncCollectionClient) -> PutCounts:
        counts, files, unlisted = PutCounts(), self.gathered.files, self.gathered.unlisted
        for folder, why in unlisted.items():
            _note(counts, folder, f"cannot be listed: {why}{'; no document is removed' if self.prune else ''}")
        slots = asyncio.Semaphore(_AT_ONCE)
        console = PlainConsole(stderr=True)
        with Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
            bar = progress.add_task(self.name, total=len(files))

            async def one(source: str, file: Path) -> None:
                async with slots:
                    await self._put(client, source, file, counts)
                    progress.advance(bar)

            await asyncio.gather(*(one(source, file) for source, file in files.items()))
        if self.prune and not unlisted:
            counts.removed = await self._prune(client)
        return counts

    async def _put(self, client: AsyncCollectionClient, source: str, file: Path, counts: PutCounts) -> None:
        try:
            text = await asyncio.to_thread(file.read_text, encoding="utf-8")
            put = await client.put(self.name, source, text, description=self.description)
        except (OSError, UnicodeDecodeError) as error:
            _note(counts, source, f"cannot be read: {error}")
        except Unavailable:
            raise  # so will the others be
        except HedgerowError as error:
            _note(counts, source, explain(error))
        else:
            _count(counts, put)

    async def _prune(self, client: AsyncCollectionClient) -> int:
        try:
            kept = await client.documents(self.name)
        except NotFound:  # nothing could be put
            return 0
        gone = [each.source for each in kept if each.source not in self.gathered.files]
        return await client.remove(self.name, gone)


def gather(given: Sequence[Path], base: Path | None, prefix: str) -> Gathered:
    """Each file by its source. Raises `InvalidArgument` where there is none, where a given one cannot be read, where
    one is not below `base`, and where two have the same source."""
    found = Gathered()

    def unlisted(error: OSError) -> None:
        found.unlisted[prefix + _relative(Path(error.filename), base)] = error.strerror or str(error)

    for file in _files(given, unlisted):
        source = prefix + _relative(file, base)
        if source in found.files and found.files[source] != file:
            raise InvalidArgument(f"{found.files[source]} and {file} have the same source, {source}")
        found.files[source] = file
    if not (found.files or found.unlisted):
        raise InvalidArgument("there is no .md, .markdown or .txt file in what was given")
    return found


def _files(given: Sequence[Path], unlisted: Callable[[OSError], None]) -> Iterator[Path]:
    for path in given:
        try:
            is_folder = stat.S_ISDIR(path.stat().st_mode)
        except OSError as error:
            raise InvalidArgument(f"{path} cannot be read: {error.strerror}") from None
        yield from _inside(path, unlisted) if is_folder else (path,)


def _inside(folder: Path, unlisted: Callable[[OSError], None]) -> list[Path]:
    walked = os.walk(folder, onerror=unlisted)
    return sorted(file for at, _, names in walked for name in names if _is_document(file := Path(at, name)))


def _is_document(file: Path) -> bool:
    """Whether a file is to be put; also one that cannot be looked at: reading it says why."""
    if file.suffix.lower() not in _ENDINGS:
        return False
    try:
        return stat.S_ISREG(file.stat().st_mode)
    except OSError:
        return True


def _relative(file: Path, base: Path | None) -> str:
    if base is None:
        return file.as_posix()
    try:
        return file.resolve().relative_to(base.resolve()).as_posix()
    except ValueError:
        raise InvalidArgument(f"{file} is not in {base}") from None


def _count(counts: PutCounts, put: CollectionPut) -> None:
    counts.put += not put.unchanged
    counts.unchanged += put.unchanged
    counts.snippets += put.snippets
    counts.embedded += put.embedded


def _note(counts: PutCounts, source: str, why: str) -> None:
    counts.failed[source] = why
    notify(f"{source}: {why}")
