"""TorchScript files (`torch.jit.save`): code, which runs with the rights of this process."""

from __future__ import annotations

import warnings
from io import BytesIO
from typing import Any

import torch

from services.vision.engines.devices import refuse_precision
from services.vision.engines.torch_backend import TorchBackend, torch_device, torch_dtype, use_threads
from services.vision.errors import BadModel
from services.vision.files import Source
from services.vision.manifest import Manifest


def load(source: Source, manifest: Manifest, threads: int) -> TorchBackend:
    """The script, frozen: its weights are constants, batch norms are folded into convolutions."""
    device = torch_device(manifest.device)
    use_threads(threads)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is deprecated", DeprecationWarning)  # torch prefers its newer format
        try:
            module = torch.jit.load(BytesIO(source.content), map_location=device).eval()
        except Exception as error:
            raise BadModel(f"file: {source.name} is no TorchScript that torch {torch.__version__} reads") from error
        if manifest.precision == "int8":
            return TorchBackend("torchscript", _quantized(module, device), device, torch.float32, manifest)
        dtype = torch_dtype(manifest.precision, device)
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
