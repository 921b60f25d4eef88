"""Files and folders for their owner alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from hedgerow.private import open_private, private_folder, take_from_others


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_folder_is_made_for_its_owner_and_one_that_is_there_is_taken_from_others(tmp_path: Path) -> None:
    (there := tmp_path / "there").mkdir(mode=0o755)
    for folder in (tmp_path / "made" / "inside", there):
        private_folder(folder)
        assert mode(folder) == 0o700


def test_the_folder_that_one_works_in_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work := tmp_path / "work" / "inside").mkdir(parents=True)
    monkeypatch.chdir(work)
    for folder in (work, work.parent):
        folder.chmod(0o755)
        private_folder(folder)
        assert mode(folder) == 0o755


def test_a_file_is_taken_from_others_once(tmp_path: Path) -> None:
    (file := tmp_path / "file").write_text("")
    file.chmod(0o664)
    assert take_from_others(file)
    assert mode(file) == 0o600
    assert not take_from_others(file)


def test_a_file_that_is_made_is_its_owners(tmp_path: Path) -> None:
    with open(tmp_path / "file", "a", opener=open_private):
        pass
    assert mode(tmp_path / "file") == 0o600
