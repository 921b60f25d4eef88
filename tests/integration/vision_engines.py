"""The demo model's files, and an engine for each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from services.vision.engine import Engine
from services.vision.engines import ArraySpec, open_engine
from services.vision.files import Source
from tests.models import MODELS

DEMO = MODELS / "demo-vision"
FILES = ("model.onnx", "model.int8.onnx", "model.ts", "model.pt2")
IMAGE = ArraySpec("image", (3, 64, 64))
OUTPUTS = ("probabilities", "embedding")


def open_demo(
    file: Path,
    device: str = "cpu",
    precision: str = "fp32",
    image: ArraySpec = IMAGE,
    outputs: tuple[str, ...] = OUTPUTS,
) -> Engine:
    return open_engine(Source.of(file), device, precision, [image], outputs, threads=1)


def noise(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(seed).standard_normal((count, 3, 64, 64)).astype(np.float32)}
