"""Vectors out of the bytes in which stores keep them. An exact-only cache reads none, and needs no NumPy for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.cache.ivf_index import Vector


def unpacked(kept: bytes) -> Vector:
    """A vector from 32-bit floats, little-endian."""
    import numpy as np

    vector: Vector = np.frombuffer(kept, "<f4")
    return vector
