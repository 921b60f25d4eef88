"""Which files may be loaded, and settings that contradict each other."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from pydantic import ValidationError

from services.vision.config import VisionSettings
from services.vision.errors import BadModel
from services.vision.files import Trust


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    return tmp_path


def test_by_default_only_what_is_no_code_is_loaded() -> None:
    assert VisionSettings().engines == ("onnx",)


@pytest.mark.parametrize(("suffix", "engine"), [(".ts", "torchscript"), (".plan", "tensorrt"), (".pt2", "export")])
def test_a_file_for_an_engine_that_is_not_listed_is_not_even_read(folder: Path, suffix: str, engine: str) -> None:
    file = folder / "a" / f"model{suffix}"  # which does not exist
    with pytest.raises(BadModel, match=rf"engines onnx \(the setting `engines`\), got model{suffix}, for {engine}"):
        Trust(folder, ("onnx",), {}).read(file)
    file.write_bytes(b"model")
    assert Trust(folder, ("onnx", engine), {}).read(file).content == b"model"


def test_a_file_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(BadModel, match=r"file: there is no .*none\.onnx"):
        Trust(folder, ("onnx",), {}).read(folder / "none.onnx")


def test_a_pinned_file_is_loaded_as_it_was_pinned_and_in_no_other_way(folder: Path) -> None:
    (file := folder / "a" / "model.onnx").write_bytes(b"model")
    trust = Trust(folder, ("onnx",), {"a/model.onnx": sha256(b"model").upper()})
    assert trust.read(file).content == b"model"
    file.write_bytes(b"other")
    with pytest.raises(BadModel, match=f"a/model.onnx with the SHA-256 {sha256(b'model')}, got {sha256(b'other')}"):
        trust.read(file)


def test_with_a_pinned_file_no_other_is_loaded(folder: Path) -> None:
    (folder / "a" / "model.onnx").write_bytes(b"model")
    with pytest.raises(BadModel, match=r"the setting `digests` names, got a/model\.onnx"):
        Trust(folder, ("onnx",), {"b/model.onnx": "0" * 64}).read(folder / "a" / "model.onnx")


def test_the_queue_has_room_for_one_request() -> None:
    with pytest.raises(ValidationError, match="max_queue: at least max_images"):
        VisionSettings(max_queue=1)
