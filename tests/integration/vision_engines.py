"""The demo model's files, and an engine for each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from services.vision.engine import VisionEngine
from services.vision.engines import open_engine
from services.vision.files import Source
from services.vision.manifest import Manifest
from tests.models import MODELS

DEMO = MODELS / "demo-vision"
FILES = ("model.onnx", "model.int8.onnx", "model.ts", "model.pt2")
IMAGE = {"name": "image", "shape": (3, 64, 64)}
OUTPUTS = ("probabilities", "embedding")


def manifest(file: Path, input: Mapping[str, Any] = IMAGE, **more: Any) -> Manifest:
    said = {"device": "cpu", "outputs": {name: name for name in OUTPUTS}, **more}
    return Manifest.model_validate({"file": file, "input": {**IMAGE, **input}, **said})


def open_demo(file: Path, **said: Any) -> VisionEngine:
    return open_engine(Source.of(file), manifest(file, **said), threads=1)


def noise(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(seed).standard_normal((count, 3, 64, 64)).astype(np.float32)}
