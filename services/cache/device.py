"""The device that clusters vectors: this machine's cores, or its first NVIDIA GPU.

A GPU finds the centroids (`rebuild.py`), and the nearest of them to each new vector and each question. The inverted
lists stay in main memory and are read there: FAISS cannot remove a vector from a GPU index, and reading takes less than
a millisecond of one core.
Source: https://github.com/facebookresearch/faiss/wiki/Faiss-on-the-GPU
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_TEMPORARY_BYTES = 64 * 1024 * 1024  # of a GPU's memory, for each large partition; FAISS would take 1.5 GiB


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


def load() -> Device:
    """A GPU where FAISS finds one, else this machine's cores."""
    import faiss

    return Device(gpu=hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0)
