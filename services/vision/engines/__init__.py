"""What runs a model's file, chosen by its suffix: ONNX Runtime, TorchScript, torch.export or TensorRT."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from services.vision.engine import Engine
from services.vision.engines.arrays import ArraySpec
from services.vision.engines.checked import Checked
from services.vision.errors import BadModel

# Loaded when first needed: a service of ONNX files alone never imports torch.
_MODULES = {".onnx": "onnx", ".ts": "torchscript", ".pt2": "exported", ".plan": "tensorrt"}
SUFFIXES = tuple(_MODULES)
PRECISIONS = ("fp32", "fp16", "bf16", "int8")

__all__ = ["PRECISIONS", "SUFFIXES", "ArraySpec", "open_engine"]


def open_engine(
    file: Path, device: str, precision: str, inputs: Sequence[ArraySpec], outputs: Sequence[str], threads: int
) -> Engine:
    """Load a model and try it on one item of zeros. Takes seconds; minutes where TensorRT builds an engine.

    `device` is `auto`, `cpu`, `cuda` or `cuda:N`; `auto` is the first GPU that the engine can use, else the CPU.
    `outputs` are all of the model's, by name; where it has no names for them, in its order. `threads` bounds the cores
    one call uses on the CPU; 0: the library decides. Raises `BadModel` with the limit and the value at fault. `run`
    raises `InvalidInput` for arrays that are not as `inputs` say, and `EngineFailed` for whatever else goes wrong.
    """
    if file.suffix not in _MODULES:
        raise BadModel(f"file: {', '.join(SUFFIXES)}, got {file.name}")
    if precision not in PRECISIONS:
        raise BadModel(f"precision: {', '.join(PRECISIONS)}, got {precision}")
    if not file.is_file():
        raise BadModel(f"file: there is no {file}")
    try:
        module = import_module(f"{__name__}.{_MODULES[file.suffix]}")
    except ImportError as error:
        raise BadModel(f"file: {file.name} needs {error.name}, which is not installed") from error
    return Checked(module.load(file, device, precision, tuple(inputs), tuple(outputs), threads), inputs, outputs)
