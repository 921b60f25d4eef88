"""A fake engine, and models over it: no library, no file of weights."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from services.vision.engine import Arrays
from services.vision.errors import EngineFailed
from services.vision.manifest import Manifest
from services.vision.model import VisionModel, warm_up

LABELS = ("dark", "bright", "green")
FOREVER_MS = 3_600_000.0
SIZE = 8  # of its pictures, both ways


class FakeEngine:
    """Scores a picture by its mean values. Runs only while its gate is open; fails while `failing`, and for a batch
    with a picture as red as `refused`."""

    kind, device, precision = "fake", "cpu", "fp32"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.busy = threading.Event()
        self.sizes: list[int] = []
        self.failing: Exception | None = None
        self.refused: float | None = None
        self.closed = False

    def run(self, inputs: Arrays) -> Arrays:
        assert not self.closed
        images = inputs["image"]
        self.sizes.append(len(images))
        self.busy.set()
        assert self.gate.wait(10)
        if self.failing:
            raise self.failing
        means = images.mean((2, 3), dtype=np.float32)
        red, green, _ = means.T
        if self.refused is not None and np.isclose(red, self.refused).any():
            raise EngineFailed(f"the model failed on a batch of {len(images)}")
        probabilities = np.stack([1 - red, red * (1 - green), red * green], 1)
        return {"probabilities": probabilities, "embedding": means}

    def close(self) -> None:
        self.closed = True


def manifest(**changes: Any) -> Manifest:
    """A manifest of a folder for `FakeEngine`."""
    described: dict[str, Any] = {
        "file": "model.onnx",
        "input": {"name": "image", "shape": [3, SIZE, SIZE]},
        "outputs": {"probabilities": "probabilities", "embedding": "embedding"},
        "labels": "labels.txt",
        "preprocessing": {"resize": [SIZE, SIZE]},
        "batching": {"max_size": 4, "preferred": []},
    }
    return Manifest.model_validate(described | changes)


def model(engine: FakeEngine, max_queue: int = 64, name: str = "fake", **changes: Any) -> VisionModel:
    """A model that is ready to serve, and waits for others for ever when it waits. Needs a running event loop."""
    described = manifest(**changes)
    patient = described.batching.model_copy(update={"max_delay_ms": FOREVER_MS})  # longer than a manifest may say
    described = described.model_copy(update={"batching": patient})
    labels = LABELS if described.labels else ()
    shapes = warm_up(described, labels, engine)
    engine.sizes.clear()
    engine.busy.clear()
    return VisionModel(name, described, labels, engine, shapes, max_queue)
