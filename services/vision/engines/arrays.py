"""The inputs of a model, and whether arrays fit them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.runtime.errors import InvalidInput
from services.vision.engine import Arrays


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An input of a model. `shape` leaves out the batch; `dtype` is NumPy's name."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    def zeros(self, batch: int) -> NDArray[np.generic]:
        """Nothing, as the model takes it."""
        return np.zeros((batch, *self.shape), self.dtype)


def batch_size(specs: Sequence[ArraySpec], arrays: Arrays) -> int:
    """How many items the arrays hold. Raises `InvalidInput` where they are not as `specs` say."""
    if set(arrays) != {spec.name for spec in specs}:
        raise InvalidInput("inputs", ", ".join(spec.name for spec in specs), ", ".join(arrays))
    sizes = {_size(spec, arrays[spec.name]) for spec in specs}
    if len(sizes) > 1:
        raise InvalidInput("inputs", "as many items in each", sorted(sizes))
    return sizes.pop()


def _size(spec: ArraySpec, array: NDArray[np.generic]) -> int:
    if array.dtype != np.dtype(spec.dtype):
        raise InvalidInput(spec.name, spec.dtype, array.dtype)
    if array.ndim != len(spec.shape) + 1 or array.shape[1:] != spec.shape or not len(array):
        raise InvalidInput(spec.name, f"shape (1 or more, {', '.join(map(str, spec.shape))})", array.shape)
    return len(array)
