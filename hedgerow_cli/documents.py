"""Files that become documents of a collection, and what came of each."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from hedgerow import AsyncCollectionClient, CollectionPut, HedgerowError, InvalidArgument, NotFound, Unavailable
from hedgerow_cli.failures import explain, notify

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
class PutAll:
    """Puts `files` (by source) into the collection `name` of a cache service. With `prune`, what the collection has
    besides goes."""

    name: str
    description: str
    prune: bool
    files: Mapping[str, Path]

    async def __call__(self, client: AsyncCollectionClient) -> PutCounts:
        counts = PutCounts()
        slots = asyncio.Semaphore(_AT_ONCE)
        console = Console(stderr=True)
        with Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
            bar = progress.add_task(self.name, total=len(self.files))

            async def one(source: str, file: Path) -> None:
                async with slots:
                    await self._put(client, source, file, counts)
                    progress.advance(bar)

            await asyncio.gather(*(one(source, file) for source, file in self.files.items()))
        if self.prune:
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
        gone = [each.source for each in kept if each.source not in self.files]
        return await client.remove(self.name, gone)


def gather(given: Sequence[Path], base: Path | None, prefix: str) -> dict[str, Path]:
    """Each file by its source. Raises `InvalidArgument` where there is none, where one is not below `base`, and where
    two have the same source."""
    found: dict[str, Path] = {}
    for file in _files(given):
        source = prefix + _relative(file, base)
        if source in found and found[source] != file:
            raise InvalidArgument(f"{found[source]} and {file} have the same source, {source}")
        found[source] = file
    if not found:
        raise InvalidArgument("there is no .md, .markdown or .txt file in what was given")
    return found


def _files(given: Iterable[Path]) -> Iterable[Path]:
    for path in given:
        if path.is_dir():
            inside = (each for each in path.rglob("*") if each.suffix.lower() in _ENDINGS and each.is_file())
            yield from sorted(inside)
        elif path.exists():
            yield path
        else:
            raise InvalidArgument(f"there is no {path}")


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
