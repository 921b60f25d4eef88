"""Running a torch module, however it was stored, on the CPU or on a CUDA stream of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from services.vision.engine import Arrays
from services.vision.engines.devices import choose_device, refuse_precision
from services.vision.manifest import Manifest

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def torch_device(asked: str) -> str:
    """`cpu` or `cuda:N`, of those torch sees."""
    return choose_device(asked, torch.cuda.device_count() if torch.cuda.is_available() else 0, "torch")


def torch_dtype(precision: str, device: str) -> torch.dtype:
    """The type to compute in. Raises `BadModel` where the device is not made for it."""
    if device == "cpu":
        supported = ["fp32", "bf16"]
    else:
        # Emulated bf16 (before compute capability 8.0) is slower than fp32.
        supported = ["fp32", "fp16", *(["bf16"] if torch.cuda.get_device_capability(device) >= (8, 0) else [])]
    if precision not in supported:
        raise refuse_precision(precision, device, "torch", " or ".join(supported))
    return _DTYPES[precision]


def use_threads(count: int) -> None:
    """Bound the cores that torch uses on the CPU, for all its models alike; 0 leaves that to torch."""
    if count:
        torch.set_num_threads(count)


class TorchBackend:
    """A module that takes the input, and returns a tensor, a tuple in the order of the manifest's outputs, or a
    dictionary. Floating-point arrays go in as `dtype` and come out as float32."""

    def __init__(self, kind: str, module: Any, device: str, dtype: torch.dtype, manifest: Manifest):
        self.kind, self.device, self.precision = kind, device, manifest.precision
        self._module, self._dtype = module, dtype
        self._input, self._outputs = manifest.input.name, tuple(manifest.outputs.values())
        # Engines on one GPU overlap: none waits for what another has queued on the default stream.
        self._stream: Any = None if device == "cpu" else torch.cuda.Stream(device)
        if self._stream is not None:  # the weights were cast and folded on the current stream, perhaps not yet
            self._stream.wait_stream(torch.cuda.current_stream(device))
        self._pinned: Any = None

    def compute(self, inputs: Arrays) -> Arrays:
        with torch.inference_mode(), nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            results = self._named(self._module(self._send(inputs[self._input])))
            fetched = {name: self._fetch(tensor) for name, tensor in results.items()}
        if self._stream is not None:
            self._stream.synchronize()  # no array is read, and no pinned buffer reused, before its copy is done
        return {name: tensor.numpy() for name, tensor in fetched.items()}

    def close(self) -> None:
        self._module = self._pinned = None
        if self._stream is not None:
            torch.cuda.empty_cache()  # torch keeps what it has freed, and other libraries share the GPU

    def _send(self, array: NDArray[np.generic]) -> Any:
        # torch does not take arrays that may not be written to, such as those over a message's bytes.
        tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
        if self._stream is not None:
            tensor = self._pin(tensor).to(self.device, non_blocking=True)
        return tensor.to(self._dtype) if tensor.is_floating_point() else tensor

    def _pin(self, tensor: Any) -> Any:
        """A copy in page-locked memory, from where a GPU reads at full speed, without the CPU."""
        if self._pinned is None or len(self._pinned) < len(tensor):
            self._pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return self._pinned[: len(tensor)].copy_(tensor)

    def _fetch(self, tensor: Any) -> Any:
        return (tensor.float() if tensor.is_floating_point() else tensor).contiguous().cpu()

    def _named(self, results: Any) -> dict[str, Any]:
        if isinstance(results, Mapping):
            return {name: results[name] for name in self._outputs}
        tensors = [results] if isinstance(results, torch.Tensor) else list(results)
        return dict(zip(self._outputs, tensors, strict=True))
