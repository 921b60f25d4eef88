"""The device that clusters vectors: this machine's cores, or its first NVIDIA GPU.

A GPU finds the centroids (`rebuild.py`), and the nearest of them to each new vector and each question. The inverted
lists stay in main memory and are read there: FAISS cannot remove a vector from a GPU index, and reading takes less than
a millisecond of one core.
Source: https://github.com/facebookresearch/faiss/wiki/Faiss-on-the-GPU
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

_TEMPORARY_BYTES = 64 * 1024 * 1024  # of a GPU's memory, for each large partition; FAISS would take 1.5 GiB


class NoDevice(Exception):
    """There is no such device, or FAISS was built without it."""


@dataclass(frozen=True, slots=True)
class Device:
    """This machine's cores, or its first GPU."""

    gpu: bool = False

    def placed(self, index: Any) -> Any:
        """The index of some centroids, where it is searched: on a GPU a copy, with memory of its own there, which
        threads may not share. Used by one thread at a time."""
        if not self.gpu:
            return index
        import faiss

        resources = faiss.StandardGpuResources()
        resources.setTempMemory(_TEMPORARY_BYTES)
        resources.setPinnedMemory(0)  # FAISS would pin 256 MiB of main memory, for copies larger than any made here
        return faiss.index_cpu_to_gpu(resources, 0, index)


CPU = Device()


def load(name: Literal["cpu", "cuda"] | None = None) -> Device:
    """The device of that name; without one, a GPU if FAISS finds it. Raises `NoDevice`."""
    if name == "cpu":
        return CPU
    try:
        return _cuda()
    except NoDevice:
        if name == "cuda":
            raise
        return CPU


def _cuda() -> Device:
    import faiss

    if not hasattr(faiss, "StandardGpuResources"):
        raise NoDevice("index_device: cuda needs a FAISS with GPUs: install hedgerow[cache-cuda], not [cache]")
    if not (found := faiss.get_num_gpus()):
        raise NoDevice(f"index_device: cuda needs at least 1 NVIDIA GPU, got {found}")
    return Device(gpu=True)
