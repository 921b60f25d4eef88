"""TensorRT plans: engines built for one kind of GPU, such as by `trtexec --saveEngine=model.plan`.

The calls are those of TensorRT 10's Python API: https://docs.nvidia.com/deeplearning/tensorrt/latest/
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import torch

from services.vision.engine import Arrays
from services.vision.engines.torch_backend import torch_device
from services.vision.errors import BadModel
from services.vision.files import Source
from services.vision.manifest import Manifest

trt: Any = import_module("tensorrt")  # the extra `vision-cuda` brings it
_DTYPES = {
    trt.float32: torch.float32,
    trt.float16: torch.float16,
    trt.bfloat16: torch.bfloat16,
    trt.int8: torch.int8,
    trt.int32: torch.int32,
    trt.int64: torch.int64,
    trt.uint8: torch.uint8,
    trt.bool: torch.bool,
}


def load(source: Source, manifest: Manifest, threads: int) -> TensorrtBackend:
    """The plan, on its GPU. Its precision was chosen when it was built, so the manifest's only says which it is."""
    device = torch_device(manifest.device)
    if device == "cpu":
        raise BadModel("device: a TensorRT plan needs a GPU, got cpu")
    with torch.cuda.device(device):
        runtime = trt.Runtime(trt.Logger(trt.Logger.WARNING))
        engine = runtime.deserialize_cuda_engine(source.content)
    if engine is None:
        raise BadModel(f"file: {source.name} is no plan for TensorRT {trt.__version__} on {device}")
    named = {engine.get_tensor_name(i) for i in range(engine.num_io_tensors)}
    wanted = {manifest.input.name, *manifest.outputs.values()}
    if wanted - named:
        raise BadModel(f"input, outputs: the plan has {sorted(named)}, got {sorted(wanted)}")
    return TensorrtBackend(engine, device, manifest.precision, list(manifest.outputs.values()))


class TensorrtBackend:
    """A plan with one context, on a CUDA stream of its own; torch keeps the memory."""

    kind = "tensorrt"

    def __init__(self, engine: Any, device: str, precision: str, outputs: Sequence[str]):
        self.device, self.precision = device, precision
        self._engine, self._outputs = engine, outputs
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        # A plan wants room for all of its outputs, also for those that are not asked for.
        self._all_outputs = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT]
        self._context = engine.create_execution_context()
        self._stream = torch.cuda.Stream(device)

    def compute(self, inputs: Arrays) -> Arrays:
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            sent = {name: self._send(name, array) for name, array in inputs.items()}
            found = {name: self._room(name) for name in self._all_outputs}
            for name, tensor in (sent | found).items():
                self._context.set_tensor_address(name, tensor.data_ptr())
            if not self._context.execute_async_v3(self._stream.cuda_stream):
                raise RuntimeError("TensorRT did not run the plan; its log says why")
            fetched = {name: self._fetch(found[name]) for name in self._outputs}
        self._stream.synchronize()  # no array is read, and no memory given back, before the GPU is done
        return {name: tensor.numpy() for name, tensor in fetched.items()}

    def close(self) -> None:
        self._context = self._engine = None
        torch.cuda.empty_cache()

    def _send(self, name: str, array: np.ndarray[Any, Any]) -> Any:
        if not self._context.set_input_shape(name, array.shape):
            raise ValueError(f"{name}: the plan was not built for the shape {array.shape}")
        # TensorRT wants rows one after the other; a pinned copy goes over while the CPU does something else.
        pinned = torch.from_numpy(np.array(array, order="C")).pin_memory()
        return pinned.to(self.device, _DTYPES[self._engine.get_tensor_dtype(name)], non_blocking=True).contiguous()

    def _fetch(self, tensor: Any) -> Any:
        return (tensor.float() if tensor.is_floating_point() else tensor).cpu()

    def _room(self, name: str) -> Any:
        shape = tuple(self._context.get_tensor_shape(name))
        return torch.empty(shape, dtype=_DTYPES[self._engine.get_tensor_dtype(name)], device=self.device)
