"""Files that become documents of a collection."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from hedgerow import AsyncCollectionClient, CollectionDocument, CollectionPut, InvalidArgument
from hedgerow_cli.documents import Gathered, PutAll, gather


class StoredSources:
    """The sources of a collection, in the place of its service."""

    def __init__(self, *sources: str):
        self.sources = set(sources)

    async def put(self, name: str, source: str, text: str, description: str) -> CollectionPut:
        self.sources.add(source)
        return CollectionPut(unchanged=False, snippets=1, embedded=1)

    async def documents(self, name: str) -> list[CollectionDocument]:
        return [CollectionDocument(each, "", 1, 1, 0) for each in sorted(self.sources)]

    async def remove(self, name: str, sources: list[str]) -> int:
        self.sources -= set(sources)
        return len(sources)


async def pruned(stored: StoredSources, gathered: Gathered) -> dict[str, Any]:
    counts = await PutAll("docs", "", True, gathered)(cast("AsyncCollectionClient", stored))
    return counts.as_object()


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """A folder with two documents."""
    (tmp_path / "in").mkdir()
    for name in ("redis.md", "in/gateway.md", "notes.bin"):
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.fixture
def unlisted(pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`in` cannot be listed. Its mode would not stop a test run by the superuser."""
    scandir = os.scandir

    def refusing(path: Any) -> Any:
        if os.fspath(path) == str(pages / "in"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)


async def test_documents_of_deleted_files_are_removed(pages: Path) -> None:
    stored = StoredSources("redis.md", "in/gateway.md", "deleted.md")
    assert (await pruned(stored, gather([pages], pages, "")))["removed"] == 1
    assert stored.sources == {"redis.md", "in/gateway.md"}


@pytest.mark.usefixtures("unlisted")
async def test_nothing_is_removed_if_a_folder_cannot_be_listed(pages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = StoredSources("in/gateway.md", "deleted.md")
    counts = await pruned(stored, gather([pages], pages, ""))
    why = "cannot be listed: Permission denied; no document is removed"
    assert (counts["put"], counts["removed"], counts["failed"]) == (1, 0, [{"source": "in", "error": why}])
    assert stored.sources == {"redis.md", "in/gateway.md", "deleted.md"}
    assert capsys.readouterr().err == f"hedgerow: in: {why}\n"


async def test_a_link_to_a_missing_file_keeps_its_document(pages: Path) -> None:
    link = pages / "moved.md"
    link.symlink_to(pages / "not-mounted" / "moved.md")
    stored = StoredSources(link.as_posix())
    assert [each["source"] for each in (await pruned(stored, gather([pages], None, "")))["failed"]] == [str(link)]
    assert link.as_posix() in stored.sources


def test_a_file_that_is_missing_is_named(pages: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"missing\.md cannot be read: No such file or directory"):
        gather([pages / "missing.md"], None, "")
