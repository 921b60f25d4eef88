"""Models of torch: TorchScript and torch.export packages, on the CPU or on a CUDA stream of its own."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from io import BytesIO
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from services.vision.engine import Arrays
from services.vision.engines import package
from services.vision.engines.devices import choose_device, refuse_precision
from services.vision.errors import BadModel
from services.vision.files import Source
from services.vision.manifest import Manifest

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def torch_device(asked: str) -> str:
    """`cpu` or `cuda:N`, of those torch sees."""
    return choose_device(asked, torch.cuda.device_count() if torch.cuda.is_available() else 0, "torch")


def _dtype(precision: str, device: str) -> torch.dtype:
    """The type to compute in. Raises `BadModel` where the device is not made for it."""
    if device == "cpu":
        supported = ["fp32", "bf16"]
    else:
        # Emulated bf16 (before compute capability 8.0) is slower than fp32.
        supported = ["fp32", "fp16", *(["bf16"] if torch.cuda.get_device_capability(device) >= (8, 0) else [])]
    if precision not in supported:
        raise refuse_precision(precision, device, "torch", " or ".join(supported))
    return _DTYPES[precision]


def _use_threads(count: int) -> None:
    """Bound the cores that torch uses on the CPU, for all its models alike; 0 leaves that to torch."""
    if count:
        torch.set_num_threads(count)


def load_script(source: Source, manifest: Manifest, threads: int) -> TorchBackend:
    """A file of `torch.jit.save`, which is code that runs with the rights of this process. The script is frozen: its
    weights are constants, batch norms are folded into convolutions."""
    device = torch_device(manifest.device)
    _use_threads(threads)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is deprecated", DeprecationWarning)  # torch prefers its newer format
        try:
            module = torch.jit.load(BytesIO(source.content), map_location=device).eval()
        except Exception as error:
            raise BadModel(f"file: {source.name} is no TorchScript that torch {torch.__version__} reads") from error
        if manifest.precision == "int8":
            return TorchBackend("torchscript", _quantized(module, device), device, torch.float32, manifest)
        dtype = _dtype(manifest.precision, device)
        module = torch.jit.freeze(module.to(dtype))
        if device == "cpu":
            module = torch.jit.optimize_for_inference(module)  # oneDNN's own layouts
    return TorchBackend("torchscript", module, device, dtype, manifest)


def _quantized(module: Any, device: str) -> Any:
    """The script as it is: int8 is made when a model is exported, and torch has it for CPUs."""
    if device != "cpu":
        raise refuse_precision("int8", device, "TorchScript", "fp32, fp16 or bf16")
    if "quantized::" not in str(module.inlined_graph):
        raise BadModel("precision: int8 needs a file with quantized layers, and this one has none")
    return module


def load_export(source: Source, manifest: Manifest, threads: int) -> TorchBackend:
    """A package of `torch.export.save`: the program's graph as a module, with its weights on the device."""
    device = torch_device(manifest.device)
    dtype = _dtype(manifest.precision, device)
    _use_threads(threads)
    archive = package.plain(source)
    try:
        program = torch.export.load(BytesIO(archive))
    except Exception as error:
        raise BadModel(f"file: {source.name} is no package that torch {torch.__version__} reads") from error
    if device != "cpu":  # also tensors that the program makes, such as `torch.zeros(…, device="cpu")`
        from torch.export.passes import move_to_device_pass

        program = move_to_device_pass(program, device)
    return TorchBackend("export", program.module().to(dtype), device, dtype, manifest)


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
