from pathlib import Path

from services.runtime.file_changes import FileChanges


def test_a_file_is_read_again_once_it_has_stopped_changing_and_then_not_again(tmp_path: Path):
    (file := tmp_path / "file").write_text("1")
    stamps = FileChanges(file)
    assert not stamps.changed()
    file.write_text("22")
    assert not stamps.changed(), "the writer may not have finished"
    assert stamps.changed()
    assert not stamps.changed()


def test_a_change_of_one_of_several_files_is_found_also_its_removal(tmp_path: Path):
    stamps = FileChanges(one := tmp_path / "one", tmp_path / "other")
    one.write_text("1")
    assert [stamps.changed(), stamps.changed()] == [False, True]
    one.unlink()
    assert [stamps.changed(), stamps.changed()] == [False, True]


def test_no_file_never_changes():
    assert not FileChanges().changed()
