"""Which files may be loaded."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from services.vision.config import VisionSettings
from services.vision.engine import Engine
from services.vision.engines import ArraySpec, open_engine
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


def test_where_any_file_is_pinned_no_other_is_loaded(folder: Path) -> None:
    (folder / "a" / "model.onnx").write_bytes(b"model")
    with pytest.raises(BadModel, match=r"the setting `digests` names, got a/model\.onnx"):
        Trust(folder, ("onnx",), {"b/model.onnx": "0" * 64}).read(folder / "a" / "model.onnx")


def with_weights_beside(folder: Path, weights: np.ndarray) -> Path:
    """A network whose weights are in `weights.bin`."""
    tensor = TensorProto()
    tensor.CopyFrom(numpy_helper.from_array(weights, "w"))
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", values[:1], values[1:], [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "model.onnx")
    (folder / "weights.bin").write_bytes(weights.tobytes())
    return folder / "model.onnx"


def opened(trust: Trust, file: Path) -> Engine:
    return open_engine(trust.read(file), "cpu", "fp32", [ArraySpec("x", (4,))], ["y"], threads=1)


def test_weights_in_a_file_of_their_own_are_found_and_pinned_like_the_model(folder: Path) -> None:
    file = with_weights_beside(folder / "a", np.full((4, 4), 2, np.float32))
    inputs: Any = {"x": np.ones((1, 4), np.float32)}
    pins = {"a/model.onnx": sha256(file.read_bytes())}
    both = {**pins, "a/weights.bin": sha256((folder / "a" / "weights.bin").read_bytes())}
    for digests in ({}, both):
        assert opened(Trust(folder, ("onnx",), digests), file).run(inputs)["y"].tolist() == [[8.0] * 4]
    with pytest.raises(BadModel, match=r"External file: weights\.bin not found"):
        opened(Trust(folder, ("onnx",), pins), file)
    (folder / "a" / "weights.bin").write_bytes(bytes(64))
    with pytest.raises(BadModel, match=r"digests: a/weights\.bin with the SHA-256"):
        opened(Trust(folder, ("onnx",), both), file)
