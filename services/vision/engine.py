"""The seam between the service and what computes: a loaded network that takes arrays and gives arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[np.generic]]


class VisionEngine(Protocol):
    """A network on one device. Calls block and may come from any thread, one at a time."""

    kind: str  # `onnx`, `torchscript`, `export`, `tensorrt`
    device: str  # `cpu`, `cuda:0`
    precision: str  # `fp32`, `fp16`, `bf16`, `int8`

    def run(self, inputs: Arrays) -> Arrays:
        """Run the model. Returns all outputs by name; the first dimension of every array is the batch. Raises
        `EngineFailed`."""
        ...

    def close(self) -> None:
        """Give the device's memory back."""
        ...
