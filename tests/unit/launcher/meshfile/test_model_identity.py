"""The identity of a mesh file's model beside its name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.meshfile.model_identity import identity_of
from launcher.meshfile.models import Model


def test_a_provider_is_its_engine_its_urls_its_options_and_its_name_there() -> None:
    def identity(**fields: object) -> str:
        return identity_of(Model.model_validate({"url": ["http://a/v1"], "model": "m", **fields}))

    assert identity() == identity(tier="fast") == identity(options={"max_connections": 8})
    changes = ({"model": "other"}, {"url": ["http://b/v1"]}, {"engine": "anthropic"}, {"options": {"revision": "2"}})
    assert len({identity(), *(identity(**change) for change in changes)}) == 1 + len(changes)


def test_a_folder_is_its_files(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    model = Model.model_construct(folder=tmp_path)
    first = identity_of(model)
    assert first == identity_of(model)
    os.utime(tmp_path / "model.safetensors", (0, 0))
    assert identity_of(model) != first


def test_a_file_removed_during_the_scan_is_no_part_of_the_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    there = identity_of(Model.model_construct(folder=tmp_path))
    (tmp_path / "part.tmp").touch()
    looks, stat = [], Path.stat

    def gone_at_the_second_look(file: Path, **how: bool) -> os.stat_result:
        if file.name == "part.tmp":
            looks.append(file)
            if len(looks) > 1:
                raise FileNotFoundError(file)
        return stat(file, **how)

    monkeypatch.setattr(Path, "stat", gone_at_the_second_look)
    identity_of(Model.model_construct(folder=tmp_path))
    looks.append(tmp_path)
    assert identity_of(Model.model_construct(folder=tmp_path)) == there


def test_a_missing_model_has_no_identity(tmp_path: Path) -> None:
    assert identity_of(Model.model_construct(folder=tmp_path / "later")) == ""
