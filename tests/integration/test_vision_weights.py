"""A model's weights in a file of their own."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from services.vision.engine import VisionEngine
from services.vision.engines import open_engine
from services.vision.errors import BadModel
from services.vision.files import Trust
from tests.integration.vision_engines import manifest


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


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def opened(trust: Trust, file: Path) -> VisionEngine:
    described = manifest(file, {"name": "x", "shape": (4,)}, outputs={"embedding": "y"})
    return open_engine(trust.read(file), described, threads=1)


def test_weights_in_a_file_of_their_own_are_found_and_pinned_like_the_model(tmp_path: Path) -> None:
    (folder := tmp_path / "a").mkdir()
    file = with_weights_beside(folder, np.full((4, 4), 2, np.float32))
    inputs: Any = {"x": np.ones((1, 4), np.float32)}
    pins = {"a/model.onnx": _sha256(file)}
    both = {**pins, "a/weights.bin": _sha256(folder / "weights.bin")}
    for digests in ({}, both):
        assert opened(Trust(tmp_path, ("onnx",), digests), file).run(inputs)["y"].tolist() == [[8.0] * 4]
    with pytest.raises(BadModel, match=r"External file: weights\.bin not found"):
        opened(Trust(tmp_path, ("onnx",), pins), file)
    (folder / "weights.bin").write_bytes(bytes(64))
    with pytest.raises(BadModel, match=r"digests: a/weights\.bin with the SHA-256"):
        opened(Trust(tmp_path, ("onnx",), both), file)
